-- 0001_log
-- Why:      the tables of the queue: declarations, log, claims, outbox, dead letters, history, upkeep.
-- Breaking: no. First release.
-- Locks:    none on existing tables.
--
-- Names and keys are compared byte by byte: collation "C". Times are in microseconds. No foreign keys: they would
-- lock the parents of every message.

create table millpond.queue (
    id          integer generated always as identity primary key,
    name        text collate "C" not null unique,
    delivery    text    not null,
    settings    text    not null,
    -- Whether finished claims leave a row of history; said by the settings, kept here for the settling statement.
    history     boolean not null,
    declared_at bigint  not null,
    -- Whether its dead letters wait for a hook.
    hooked      boolean not null default false
);

-- A queue has one subscription, whose name is empty; a topic has one for each named reader.
create table millpond.subscription (
    id       integer generated always as identity primary key,
    queue_id integer not null,
    name     text collate "C" not null,
    unique (queue_id, name)
);

-- Made when the first message needs it. subscription_id is null where every subscription reads.
create table millpond.log_partition (
    id              integer generated always as identity primary key,
    queue_id        integer  not null,
    class           smallint not null,
    route           text collate "C" not null default '',
    lane            smallint not null,
    subscription_id integer,
    generation      integer  not null default 0,
    ordinal         integer  not null default 0,
    first_offset    bigint   not null default 0
);

create unique index log_partition_part
    on millpond.log_partition (queue_id, class, route, lane, coalesce(subscription_id, 0), generation, ordinal);

-- Append-only. What is the same in nearly every message that was sent directly is null, which takes no room:
-- attempt, releases and suspect 0, via_outbox false, sent_at that of publishing. Rows that came through the outbox
-- are found by id through an index; the others are found through the time in their id.
create table millpond.log (
    partition    integer  not null,
    checksum     integer  not null,
    log_offset   bigint   not null,
    published_at bigint   not null,
    sent_at      bigint,
    attempts_max bigint,
    retry_until  bigint,
    attempt      integer,
    releases     integer,
    suspect      smallint,
    via_outbox   boolean,
    message_id   uuid     not null,
    kind         text,
    key          text,
    content_type text,
    headers      text,
    body         bytea    not null,
    primary key (partition, log_offset)
);

-- Bodies are not compressed: it would cost more than the disk they save.
alter table millpond.log alter column body set storage external;

create index log_message on millpond.log (message_id) where via_outbox;

-- A claim without a token is a marker: nothing in it is under lease. The highest claim of a partition is
-- the cursor and is never deleted. done and runs have a bit, and 40 bits (outcome, run time), for each message,
-- from the highest offset down. A finished claim keeps its worker, so that no index entry changes.
create table millpond.claim (
    subscription_id integer not null,
    partition       integer not null,
    to_offset       bigint  not null,
    from_offset     bigint  not null,
    leased_at       bigint  not null,
    expires_at      bigint,
    in_hand         integer,
    token           uuid,
    worker          text collate "C",
    done            bit varying,
    runs            bit varying,
    primary key (subscription_id, partition, to_offset)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

create index claim_worker on millpond.claim (worker) where worker is not null;
create index claim_expires on millpond.claim (expires_at) where expires_at is not null;

create table millpond.outbox (
    seq             bigint generated always as identity primary key,
    message_id      uuid     not null,
    subscription_id integer  not null default 0,
    queue_id        integer  not null,
    class           smallint not null,
    lane            smallint not null,
    suspect         smallint not null,
    checksum        integer  not null,
    ready_at        bigint   not null,
    created_at      bigint   not null,
    sent_at         bigint   not null,
    attempts_max    bigint,
    retry_until     bigint,
    attempt         integer  not null,
    releases        integer  not null,
    reason          text     not null,
    kind            text,
    key             text,
    content_type    text,
    headers         text,
    last_error      text,
    body            bytea    not null,
    unique (message_id, subscription_id)
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

alter table millpond.outbox alter column body set storage external;

create index outbox_ready on millpond.outbox (ready_at, seq);

create table millpond.dead_letter (
    id              bigint generated always as identity primary key,
    message_id      uuid     not null,
    subscription_id integer  not null,
    queue_id        integer  not null,
    class           smallint not null,
    checksum        integer  not null,
    died_at         bigint   not null,
    sent_at         bigint   not null,
    attempts_max    bigint,
    attempt         integer  not null,
    releases        integer  not null,
    redriven_as     uuid,
    reason          text     not null,
    detail          text,
    hook            text     not null default 'none',
    kind            text,
    key             text,
    content_type    text,
    headers         text,
    body            bytea    not null,
    hook_tries      integer  not null default 0,
    hook_until      bigint   not null default 0,
    unique (message_id, subscription_id)
);

create index dead_letter_hook on millpond.dead_letter (queue_id, hook_until) where hook = 'pending';
create index dead_letter_queue on millpond.dead_letter (queue_id, died_at);

-- One row for each finished claim; runs as in the claim.
create table millpond.history (
    id          bigint generated always as identity primary key,
    queue_id    integer not null,
    partition   integer not null,
    from_offset bigint  not null,
    to_offset   bigint  not null,
    leased_at   bigint  not null,
    finished_at bigint  not null,
    worker      text,
    runs        bit varying not null
);

create index history_range on millpond.history (partition, to_offset);
create index history_finished on millpond.history (finished_at);

-- Rows only for what is rare: RETRY, DLQ, RECOVER.
create table millpond.event (
    id         bigint generated always as identity primary key,
    message_id uuid    not null,
    queue_id   integer not null,
    attempt    integer not null,
    releases   integer not null,
    at         bigint  not null,
    kind       text    not null,
    reason     text    not null,
    worker     text,
    error      text
);

create index event_message on millpond.event (message_id);
create index event_at on millpond.event (at);

-- Messages whose effect was committed, written in the handler's own transaction.
create table millpond.inbox (
    subscription_id integer not null,
    message_id      uuid    not null,
    committed_at    bigint  not null,
    primary key (subscription_id, message_id)
);

create index inbox_committed on millpond.inbox (committed_at);

create table millpond.dedup (
    queue_id   integer not null,
    checksum   integer not null,
    expires_at bigint  not null,
    message_id uuid    not null,
    dedup_key  text collate "C" not null,
    primary key (queue_id, dedup_key)
);

create index dedup_expires on millpond.dedup (expires_at);

-- Heartbeat and lease of each worker.
create table millpond.worker (
    id          text collate "C" primary key,
    host        text    not null,
    queues      text[]  not null,
    slots       integer not null,
    busy        integer not null,
    error       text,
    started_at  bigint  not null,
    seen_at     bigint  not null,
    lease_until bigint  not null,
    lease       bigint  not null,
    stopped     boolean not null default false
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- Duties that one node does at a time.
create table millpond.upkeep (
    duty  text   primary key,
    owner text   not null,
    until bigint not null
);

-- Counters by the minute; minute 0 holds what is older than a day.
create table millpond.stat (
    queue_id  integer not null,
    minute    integer not null,
    sent      bigint  not null default 0,
    leased    bigint  not null default 0,
    done      bigint  not null default 0,
    retried   bigint  not null default 0,
    dead      bigint  not null default 0,
    recovered bigint  not null default 0,
    kind      text collate "C" not null,
    primary key (queue_id, kind, minute)
);

-- What each transaction adds to the counters. A row that everybody updates would make settlements wait for the flush
-- of a send, and its dead versions would pile up under a held snapshot. Upkeep sums these rows into stat.
create table millpond.stat_delta (
    queue_id  integer not null,
    minute    integer not null,
    sent      integer not null default 0,
    leased    integer not null default 0,
    done      integer not null default 0,
    retried   integer not null default 0,
    dead      integer not null default 0,
    recovered integer not null default 0,
    kind      text collate "C" not null
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- The given time, or the server's, in microseconds.
create function millpond.time_of(given bigint) returns bigint language sql volatile as $$
    select coalesce(given, (extract(epoch from clock_timestamp()) * 1000000)::bigint)
$$;
