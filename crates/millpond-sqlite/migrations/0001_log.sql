-- 0001_log
-- Why:      the tables of the queue: declarations, log, claims, outbox, dead letters, history, upkeep.
-- Breaking: no. First release.
-- Locks:    none on existing tables.

create table millpond_queue (
    id          integer primary key,
    name        text    not null unique,
    delivery    text    not null,
    settings    text    not null,
    declared_at integer not null
) strict;

-- A queue has one subscription, whose name is empty; a topic has one for each named reader.
create table millpond_subscription (
    id       integer primary key,
    queue_id integer not null,
    name     text    not null,
    unique (queue_id, name)
) strict;

-- Made when the first message needs it. subscription_id is null where every subscription reads.
create table millpond_log_partition (
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

create unique index millpond_log_partition_part
    on millpond_log_partition (queue_id, class, route, lane, coalesce(subscription_id, 0), generation, ordinal);

-- Append-only. Times in microseconds. via_outbox marks rows that are found by id through an index; the
-- others are found through the time in their id.
create table millpond_log (
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
    body         blob    not null,
    primary key (partition, log_offset)
) strict, without rowid;

create index millpond_log_message on millpond_log (message_id) where via_outbox = 1;

-- A claim without a token is a marker: nothing in it is under lease. The highest claim of a partition is
-- the cursor and is never deleted.
create table millpond_claim (
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

create index millpond_claim_worker on millpond_claim (worker) where worker is not null;
create index millpond_claim_expires on millpond_claim (expires_at) where expires_at is not null;

create table millpond_outbox (
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
    body            blob    not null,
    unique (message_id, subscription_id)
) strict;

create index millpond_outbox_ready on millpond_outbox (ready_at);

create table millpond_dead_letter (
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
    checksum        integer not null,
    kind            text,
    key             text,
    content_type    text,
    headers         text,
    body            blob    not null,
    unique (message_id, subscription_id)
) strict;

create index millpond_dead_letter_queue on millpond_dead_letter (queue_id, died_at);

-- One row for each finished claim. runs: five bytes a message, its outcome and its run time.
create table millpond_history (
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

create index millpond_history_range on millpond_history (partition, to_offset);
create index millpond_history_finished on millpond_history (finished_at);

-- Rows only for what is rare: RETRY, DLQ, RECOVER.
create table millpond_event (
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
) strict;

create index millpond_event_message on millpond_event (message_id);
create index millpond_event_at on millpond_event (at);

-- Messages whose effect was committed, written in the handler's own transaction.
create table millpond_inbox (
    subscription_id integer not null,
    message_id      blob    not null,
    committed_at    integer not null,
    primary key (subscription_id, message_id)
) strict, without rowid;

create index millpond_inbox_committed on millpond_inbox (committed_at);

create table millpond_dedup (
    queue_id   integer not null,
    dedup_key  text    not null,
    message_id blob    not null,
    checksum   integer not null,
    expires_at integer not null,
    primary key (queue_id, dedup_key)
) strict, without rowid;

create index millpond_dedup_expires on millpond_dedup (expires_at);

-- Heartbeat and lease of each worker.
create table millpond_worker (
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
) strict, without rowid;

-- Duties that one node does at a time.
create table millpond_upkeep (
    duty  text    primary key,
    owner text    not null,
    until integer not null
) strict, without rowid;

-- Counters by the minute; minute 0 holds what is older than a day.
create table millpond_stat (
    queue_id  integer not null,
    kind      text    not null,
    minute    integer not null,
    sent      integer not null default 0,
    leased    integer not null default 0,
    done      integer not null default 0,
    retried   integer not null default 0,
    dead      integer not null default 0,
    recovered integer not null default 0,
    primary key (queue_id, kind, minute)
) strict, without rowid;
