-- 0002_operations
-- Why:      what operators change at run time (settings, pauses, cancellations, wishes of workers) and who did; trends of
--           what happened.
-- Breaking: no.
-- Locks:    none on existing tables.

create table millpond_setting_change (
    queue_id   int            not null,
    changed_at bigint         not null,
    setting    varbinary(100) not null,
    value      mediumtext     not null,
    actor      text           not null,
    primary key (queue_id, setting)
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin row_format = dynamic;

-- Queue 0 stands for all of them.
create table millpond_pause (
    queue_id  int    not null primary key,
    paused_at bigint not null,
    until     bigint,
    actor     text   not null,
    reason    mediumtext
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin row_format = dynamic;

-- The queues that have a limit over all nodes: one row while they have, so that a lease of another queue only sees that
-- there is none. It is what a lease of the queue locks, and says when the bucket of the rate is full again; without a rate
-- that says nothing.
create table millpond_queue_limit (
    queue_id int    not null primary key,
    full_at  bigint not null
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin row_format = dynamic;

-- Messages in the log that are not to be worked on (ready) or to be stopped (leased).
create table millpond_cancel (
    subscription_id int    not null,
    `partition`     int    not null,
    log_offset      bigint not null,
    asked_at        bigint not null,
    actor           text   not null,
    reason          mediumtext,
    primary key (subscription_id, `partition`, log_offset)
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin row_format = dynamic;

create table millpond_audit (
    number bigint not null primary key,
    at     bigint not null,
    count  bigint not null,
    actor  text   not null,
    verb   text   not null,
    object mediumtext not null,
    reason mediumtext,
    hash   varbinary(64) not null
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin row_format = dynamic;

-- The six counts by the quarter of an hour, for trends; stat keeps a day by the minute and one total.
create table millpond_stat_quarter (
    queue_id  int    not null,
    quarter   int    not null,
    sent      bigint not null default 0,
    leased    bigint not null default 0,
    done      bigint not null default 0,
    retried   bigint not null default 0,
    dead      bigint not null default 0,
    recovered bigint not null default 0,
    run       bigint not null default 0,
    kind      varbinary(100) not null,
    primary key (queue_id, kind, quarter)
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin row_format = dynamic;

-- Raised by every change of a declaration, a setting or a pause. Whoever writes a line of the audit locks the second row.
create table millpond_declarations (
    only_one int    not null primary key,
    number   bigint not null
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin row_format = dynamic;

insert ignore into millpond_declarations (only_one, number) values (1, 1), (2, 0);
