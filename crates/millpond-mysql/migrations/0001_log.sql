-- 0001_log
-- Why:      the tables of the queue: declarations, log, claims, outbox, dead letters, history, upkeep.
-- Breaking: no. First release.
-- Locks:    none on existing tables.
--
-- Names, keys and ids are VARBINARY or BINARY: they are compared byte by byte, and a trailing blank counts. What people
-- read is utf8mb4. Times are in microseconds. No foreign keys: they would lock the parents of every message. Changes of
-- tables commit by themselves here, so a migration that was interrupted goes on at its next statement.

create table millpond_queue (
    id          int not null auto_increment primary key,
    name        varbinary(100) not null,
    delivery    varbinary(32)  not null,
    settings    mediumtext     not null,
    -- Whether finished claims leave a row of history; said by the settings, kept here for the settling statement.
    history     tinyint        not null,
    declared_at bigint         not null,
    -- Whether its dead letters wait for a hook.
    hooked      tinyint        not null default 0,
    unique key queue_name (name)
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin row_format = dynamic;

-- A queue has one subscription, whose name is empty; a topic has one for each named reader.
create table millpond_subscription (
    id       int not null auto_increment primary key,
    queue_id int            not null,
    name     varbinary(100) not null,
    unique key subscription_name (queue_id, name)
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin row_format = dynamic;

-- Made when the first message needs it. subscription_id is 0 where every subscription reads. next_offset and
-- published_at are those of the next message: whoever appends locks the row, so that offsets have no gaps (R1).
create table millpond_log_partition (
    id              int not null auto_increment primary key,
    queue_id        int            not null,
    class           smallint       not null,
    lane            smallint       not null,
    subscription_id int            not null default 0,
    generation      int            not null default 0,
    ordinal         int            not null default 0,
    first_offset    bigint         not null default 0,
    next_offset     bigint         not null default 0,
    published_at    bigint         not null default 0,
    route           varbinary(250) not null default '',
    unique key log_partition_part (queue_id, class, lane, route, subscription_id, generation, ordinal)
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin row_format = dynamic;

-- Append-only. What is the same in nearly every message that was sent directly is null, which takes no room:
-- attempt, releases and suspect 0, via_outbox false, sent_at that of publishing. reason: why it came through the
-- outbox; null: it was sent straight to the log. Messages are found through the time in their id.
create table millpond_log (
    `partition`  int            not null,
    log_offset   bigint         not null,
    published_at bigint         not null,
    checksum     int            not null,
    message_id   binary(16)     not null,
    sent_at      bigint,
    attempts_max bigint,
    retry_until  bigint,
    attempt      int,
    releases     int,
    suspect      smallint,
    via_outbox   tinyint,
    reason       varbinary(32),
    kind         varbinary(100),
    `key`        varbinary(250),
    content_type varbinary(255),
    headers      mediumtext,
    body         longblob       not null,
    primary key (`partition`, log_offset)
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin row_format = dynamic;

-- Rows of the log that came through the outbox, by the id of their message. A table beside it, because an index over
-- some of the rows is not to be had here, and one over all of them would cost every send.
create table millpond_log_returned (
    `partition`  int        not null,
    log_offset   bigint     not null,
    sent_at      bigint     not null,
    message_id   binary(16) not null,
    primary key (`partition`, log_offset),
    key log_message (message_id),
    key log_sent (`partition`, sent_at, message_id)
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin row_format = dynamic;

-- What a lease locks, so that nobody else moves the cursor of a partition. Nobody changes it.
create table millpond_claim_lock (
    subscription_id int not null,
    `partition`     int not null,
    primary key (subscription_id, `partition`)
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin row_format = dynamic;

-- A claim without a token is a marker: nothing in it is under lease. The highest claim of a partition is
-- the cursor and is never deleted. done and runs have a bit, and five bytes (outcome, run time), for each message,
-- from the highest offset down. A finished claim keeps its worker, so that no index entry changes.
create table millpond_claim (
    subscription_id int    not null,
    `partition`     int    not null,
    to_offset       bigint not null,
    from_offset     bigint not null,
    leased_at       bigint not null,
    expires_at      bigint,
    in_hand         int,
    token           binary(16),
    worker          varbinary(255),
    done            varbinary(128),
    runs            blob,
    primary key (subscription_id, `partition`, to_offset),
    key claim_worker (worker),
    key claim_expires (expires_at)
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin row_format = dynamic;

create table millpond_outbox (
    seq             bigint not null auto_increment primary key,
    message_id      binary(16) not null,
    subscription_id int        not null default 0,
    queue_id        int        not null,
    class           smallint   not null,
    lane            smallint   not null,
    suspect         smallint   not null,
    checksum        int        not null,
    ready_at        bigint     not null,
    created_at      bigint     not null,
    sent_at         bigint     not null,
    attempts_max    bigint,
    retry_until     bigint,
    attempt         int        not null,
    releases        int        not null,
    reason          varbinary(32) not null,
    retry_of        binary(16),
    kind            varbinary(100),
    `key`           varbinary(250),
    content_type    varbinary(255),
    headers         mediumtext,
    last_error      mediumtext,
    body            longblob   not null,
    unique key outbox_message (message_id, subscription_id),
    key outbox_ready (ready_at, seq),
    -- For counts and lists: nothing reads a body to know where a message is.
    key outbox_state (queue_id, ready_at, seq, reason, attempt),
    key outbox_sent (queue_id, sent_at, message_id)
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin row_format = dynamic;

create table millpond_dead_letter (
    id              bigint not null auto_increment primary key,
    message_id      binary(16) not null,
    subscription_id int        not null,
    queue_id        int        not null,
    class           smallint   not null,
    checksum        int        not null,
    died_at         bigint     not null,
    sent_at         bigint     not null,
    redriven_at     bigint,
    attempts_max    bigint,
    attempt         int        not null,
    releases        int        not null,
    redriven_as     binary(16),
    retry_of        binary(16),
    reason          varbinary(32)  not null,
    hook            varbinary(32)  not null default 'none',
    hook_tries      int            not null default 0,
    hook_until      bigint         not null default 0,
    fingerprint     varbinary(100),
    worker          varbinary(255),
    kind            varbinary(100),
    `key`           varbinary(250),
    content_type    varbinary(255),
    error_class     mediumtext,
    detail          mediumtext,
    headers         mediumtext,
    body            longblob   not null,
    unique key dead_letter_message (message_id, subscription_id),
    key dead_letter_hook (hook, queue_id, hook_until),
    key dead_letter_queue (queue_id, died_at),
    key dead_letter_died (died_at),
    key dead_letter_sent (queue_id, sent_at, message_id),
    key dead_letter_redriven (redriven_as, queue_id)
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin row_format = dynamic;

-- One row for each finished claim; runs as in the claim.
create table millpond_history (
    id          bigint not null auto_increment primary key,
    queue_id    int    not null,
    `partition` int    not null,
    from_offset bigint not null,
    to_offset   bigint not null,
    leased_at   bigint not null,
    finished_at bigint not null,
    worker      varbinary(255),
    runs        blob   not null,
    key history_range (`partition`, to_offset),
    key history_finished (finished_at)
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin row_format = dynamic;

-- Rows only for what is rare: RETRY, DLQ, RECOVER. message_id is null where an entry speaks of many messages.
create table millpond_event (
    id         bigint not null auto_increment primary key,
    message_id binary(16),
    retry_of   binary(16),
    queue_id   int    not null,
    attempt    int    not null,
    releases   int    not null,
    at         bigint not null,
    run        bigint,
    count      bigint not null default 1,
    kind       varbinary(32)  not null,
    reason     varbinary(32)  not null,
    worker     varbinary(255),
    name       varbinary(100),
    error      mediumtext,
    key event_message (message_id),
    key event_at (at),
    key event_queue (queue_id, at)
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin row_format = dynamic;

-- Messages whose effect was committed, written in the handler's own transaction.
create table millpond_inbox (
    subscription_id int        not null,
    message_id      binary(16) not null,
    committed_at    bigint     not null,
    primary key (subscription_id, message_id),
    key inbox_committed (committed_at)
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin row_format = dynamic;

create table millpond_dedup (
    queue_id   int            not null,
    checksum   int            not null,
    expires_at bigint         not null,
    message_id binary(16)     not null,
    dedup_key  varbinary(250) not null,
    primary key (queue_id, dedup_key),
    key dedup_expires (expires_at)
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin row_format = dynamic;

-- Heartbeat and lease of each worker. queues is a list in JSON.
create table millpond_worker (
    id          varbinary(255) not null primary key,
    host        text    not null,
    queues      mediumtext not null,
    slots       int     not null,
    busy        int     not null,
    error       mediumtext,
    started_at  bigint  not null,
    seen_at     bigint  not null,
    lease_until bigint  not null,
    lease       bigint  not null,
    stopped     tinyint not null default 0,
    facts       mediumtext,
    wish        varbinary(32)
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin row_format = dynamic;

-- Duties that one node does at a time.
create table millpond_upkeep (
    duty  varbinary(64)  not null primary key,
    owner varbinary(255) not null,
    until bigint         not null
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin row_format = dynamic;

-- Counters by the minute; minute 0 holds what is older than a day.
create table millpond_stat (
    queue_id  int    not null,
    minute    int    not null,
    sent      bigint not null default 0,
    leased    bigint not null default 0,
    done      bigint not null default 0,
    retried   bigint not null default 0,
    dead      bigint not null default 0,
    recovered bigint not null default 0,
    run       bigint not null default 0,
    kind      varbinary(100) not null,
    primary key (queue_id, kind, minute)
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin row_format = dynamic;

-- What each transaction adds to the counters. A row that everybody updates would make settlements wait for the flush
-- of a send. Upkeep sums these rows into stat.
create table millpond_stat_delta (
    id        bigint not null auto_increment primary key,
    queue_id  int    not null,
    minute    int    not null,
    sent      int    not null default 0,
    leased    int    not null default 0,
    done      int    not null default 0,
    retried   int    not null default 0,
    dead      int    not null default 0,
    recovered int    not null default 0,
    run       bigint not null default 0,
    kind      varbinary(100) not null
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin row_format = dynamic;
