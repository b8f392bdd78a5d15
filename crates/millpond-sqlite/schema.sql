CREATE TABLE millpond_audit (
    number integer primary key,
    at     integer not null,
    actor  text    not null,
    verb   text    not null,
    object text    not null,
    count  integer not null,
    reason text,
    hash   blob    not null
) strict;

CREATE TABLE millpond_cancel (
    subscription_id integer not null,
    partition       integer not null,
    log_offset      integer not null,
    actor           text    not null,
    reason          text,
    asked_at        integer not null,
    primary key (subscription_id, partition, log_offset)
) strict, without rowid;

CREATE TABLE millpond_claim (
    subscription_id integer not null,
    partition       integer not null,
    to_offset       integer not null,
    from_offset     integer not null,
    token           blob,
    worker          text,
    expires_at      integer,
    leased_at       integer not null,
    in_hand         integer,
    done            blob    not null,
    runs            blob    not null,
    primary key (subscription_id, partition, to_offset)
) strict, without rowid;

CREATE INDEX millpond_claim_expires on millpond_claim (expires_at) where expires_at is not null;

CREATE INDEX millpond_claim_worker on millpond_claim (worker) where worker is not null;

CREATE TABLE "millpond_dead_letter" (
    id              integer primary key,
    message_id      blob    not null,
    subscription_id integer not null,
    queue_id        integer not null,
    class           integer not null,
    reason          text    not null,
    detail          text,
    died_at         integer not null,
    sent_at         integer not null,
    attempt         integer not null,
    releases        integer not null,
    attempts_max    integer,
    hook            text    not null default 'none',
    redriven_as     blob,
    redriven_at     integer,
    retry_of        blob,
    error_class     text,
    fingerprint     text,
    worker          text,
    checksum        integer not null,
    kind            text,
    key             text,
    content_type    text,
    headers         text,
    body            blob    not null,
    unique (message_id, subscription_id)
) strict;

CREATE INDEX millpond_dead_letter_died on millpond_dead_letter (died_at);

CREATE INDEX millpond_dead_letter_open on millpond_dead_letter (queue_id) where redriven_as is null;

CREATE INDEX millpond_dead_letter_queue on millpond_dead_letter (queue_id, died_at);

CREATE INDEX millpond_dead_letter_redriven on millpond_dead_letter (redriven_as) where redriven_as is not null;

CREATE INDEX millpond_dead_letter_sent on millpond_dead_letter (queue_id, sent_at, message_id);

CREATE TABLE millpond_declarations (
    only_one integer primary key check (only_one = 1),
    number   integer not null
) strict;

CREATE TABLE millpond_dedup (
    queue_id   integer not null,
    dedup_key  text    not null,
    message_id blob    not null,
    checksum   integer not null,
    expires_at integer not null,
    primary key (queue_id, dedup_key)
) strict, without rowid;

CREATE INDEX millpond_dedup_expires on millpond_dedup (expires_at);

CREATE TABLE millpond_event (
    id         integer primary key,
    message_id blob    not null,
    queue_id   integer not null,
    kind       text    not null,
    reason     text    not null,
    attempt    integer not null,
    releases   integer not null,
    worker     text,
    error      text,
    at         integer not null
, run integer, count integer not null default 1, retry_of blob, name text) strict;

CREATE INDEX millpond_event_at on millpond_event (at);

CREATE INDEX millpond_event_message on millpond_event (message_id);

CREATE INDEX millpond_event_queue on millpond_event (queue_id, at);

CREATE TABLE millpond_history (
    id          integer primary key,
    queue_id    integer not null,
    partition   integer not null,
    from_offset integer not null,
    to_offset   integer not null,
    worker      text,
    leased_at   integer not null,
    finished_at integer not null,
    runs        blob    not null
) strict;

CREATE INDEX millpond_history_finished on millpond_history (finished_at);

CREATE INDEX millpond_history_range on millpond_history (partition, to_offset);

CREATE TABLE millpond_inbox (
    subscription_id integer not null,
    message_id      blob    not null,
    committed_at    integer not null,
    primary key (subscription_id, message_id)
) strict, without rowid;

CREATE INDEX millpond_inbox_committed on millpond_inbox (committed_at);

CREATE TABLE millpond_log (
    partition    integer not null,
    log_offset   integer not null,
    message_id   blob    not null,
    attempt      integer not null,
    releases     integer not null,
    suspect      integer not null,
    sent_at      integer not null,
    published_at integer not null,
    via_outbox   integer not null,
    attempts_max integer,
    retry_until  integer,
    checksum     integer not null,
    kind         text,
    key          text,
    content_type text,
    headers      text,
    body         blob    not null, reason text,
    primary key (partition, log_offset)
) strict, without rowid;

CREATE INDEX millpond_log_message on millpond_log (message_id) where via_outbox = 1;

CREATE TABLE millpond_log_partition (
    id              integer primary key,
    queue_id        integer not null,
    class           integer not null,
    route           text    not null default '',
    lane            integer not null,
    subscription_id integer,
    generation      integer not null default 0,
    ordinal         integer not null default 0,
    first_offset    integer not null default 0
) strict;

CREATE UNIQUE INDEX millpond_log_partition_part
    on millpond_log_partition (queue_id, class, route, lane, coalesce(subscription_id, 0), generation, ordinal);

CREATE INDEX millpond_log_sent on millpond_log (partition, sent_at, message_id) where via_outbox = 1;

CREATE TABLE millpond_migration (
             number integer primary key, name text not null, checksum integer not null, applied_at integer not null
         ) strict;

CREATE TABLE millpond_outbox (
    seq             integer primary key,
    message_id      blob    not null,
    subscription_id integer not null default 0,
    queue_id        integer not null,
    class           integer not null,
    reason          text    not null,
    ready_at        integer not null,
    created_at      integer not null,
    sent_at         integer not null,
    attempt         integer not null,
    releases        integer not null,
    suspect         integer not null,
    attempts_max    integer,
    retry_until     integer,
    checksum        integer not null,
    kind            text,
    key             text,
    content_type    text,
    headers         text,
    last_error      text,
    body            blob    not null, retry_of blob,
    unique (message_id, subscription_id)
) strict;

CREATE INDEX millpond_outbox_ready on millpond_outbox (ready_at);

CREATE INDEX millpond_outbox_sent on millpond_outbox (queue_id, sent_at, message_id);

CREATE INDEX millpond_outbox_state on millpond_outbox (queue_id, ready_at, reason, attempt);

CREATE TABLE millpond_pause (
    queue_id  integer primary key,
    reason    text,
    actor     text    not null,
    paused_at integer not null,
    until     integer
) strict;

CREATE TABLE millpond_queue (
    id          integer primary key,
    name        text    not null unique,
    delivery    text    not null,
    settings    text    not null,
    declared_at integer not null
) strict;

CREATE TABLE millpond_setting_change (
    queue_id   integer not null,
    setting    text    not null,
    value      text    not null,
    actor      text    not null,
    changed_at integer not null,
    primary key (queue_id, setting)
) strict, without rowid;

CREATE TABLE millpond_stat (
    queue_id  integer not null,
    kind      text    not null,
    minute    integer not null,
    sent      integer not null default 0,
    leased    integer not null default 0,
    done      integer not null default 0,
    retried   integer not null default 0,
    dead      integer not null default 0,
    recovered integer not null default 0, run integer not null default 0,
    primary key (queue_id, kind, minute)
) strict, without rowid;

CREATE TABLE millpond_stat_quarter (
    queue_id  integer not null,
    kind      text    not null,
    quarter   integer not null,
    sent      integer not null default 0,
    leased    integer not null default 0,
    done      integer not null default 0,
    retried   integer not null default 0,
    dead      integer not null default 0,
    recovered integer not null default 0,
    run       integer not null default 0,
    primary key (queue_id, kind, quarter)
) strict, without rowid;

CREATE TABLE millpond_subscription (
    id       integer primary key,
    queue_id integer not null,
    name     text    not null,
    unique (queue_id, name)
) strict;

CREATE TABLE millpond_upkeep (
    duty  text    primary key,
    owner text    not null,
    until integer not null
) strict, without rowid;

CREATE TABLE millpond_worker (
    id          text    primary key,
    host        text    not null,
    queues      text    not null,
    slots       integer not null,
    busy        integer not null,
    error       text,
    started_at  integer not null,
    seen_at     integer not null,
    lease_until integer not null,
    lease       integer not null,
    stopped     integer not null default 0
, facts text, wish text) strict, without rowid;

