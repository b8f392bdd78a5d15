-- 0002_operations
-- Why:      what operators change at run time (settings, pauses, cancellations, wishes of workers) and who did; lists,
--           groups and trends of what happened.
-- Breaking: no. Nodes of an earlier release go on; what they write lacks the new columns.
-- Locks:    the one write lock, while dead letters are copied and outbox and log get an index.

create table millpond_setting_change (
    queue_id   integer not null,
    setting    text    not null,
    value      text    not null,
    actor      text    not null,
    changed_at integer not null,
    primary key (queue_id, setting)
) strict, without rowid;

-- Queue 0 stands for all of them.
create table millpond_pause (
    queue_id  integer primary key,
    reason    text,
    actor     text    not null,
    paused_at integer not null,
    until     integer
) strict;

-- Messages in the log that are not to be worked on (ready) or to be stopped (leased).
create table millpond_cancel (
    subscription_id integer not null,
    partition       integer not null,
    log_offset      integer not null,
    actor           text    not null,
    reason          text,
    asked_at        integer not null,
    primary key (subscription_id, partition, log_offset)
) strict, without rowid;

create table millpond_audit (
    number integer primary key,
    at     integer not null,
    actor  text    not null,
    verb   text    not null,
    object text    not null,
    count  integer not null,
    reason text,
    hash   blob    not null
) strict;

-- The six counts by the quarter of an hour, for trends; `millpond_stat` keeps a day by the minute and one total.
create table millpond_stat_quarter (
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

-- Raised by every change of a declaration, a setting or a pause.
create table millpond_declarations (
    only_one integer primary key check (only_one = 1),
    number   integer not null
) strict;

insert into millpond_declarations (only_one, number) values (1, 1);

alter table millpond_stat add column run integer not null default 0;

-- Dead letters are made anew: what lists and groups read comes before the body, which may fill pages of its own.
create table millpond_dead_letter_0002 (
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

insert into millpond_dead_letter_0002 (id, message_id, subscription_id, queue_id, class, reason, detail, died_at, sent_at,
                                       attempt, releases, attempts_max, hook, redriven_as, checksum, kind, key,
                                       content_type, headers, body)
select id, message_id, subscription_id, queue_id, class, reason, detail, died_at, sent_at,
       attempt, releases, attempts_max, hook, redriven_as, checksum, kind, key, content_type, headers, body
from millpond_dead_letter;

drop table millpond_dead_letter;

alter table millpond_dead_letter_0002 rename to millpond_dead_letter;

create index millpond_dead_letter_queue on millpond_dead_letter (queue_id, died_at);
create index millpond_dead_letter_died on millpond_dead_letter (died_at);
create index millpond_dead_letter_sent on millpond_dead_letter (queue_id, sent_at, message_id);
create index millpond_dead_letter_open on millpond_dead_letter (queue_id) where redriven_as is null;
create index millpond_dead_letter_redriven on millpond_dead_letter (redriven_as) where redriven_as is not null;

-- For counts and lists: nothing reads a body to know where a message is.
create index millpond_outbox_state on millpond_outbox (queue_id, ready_at, reason, attempt);
create index millpond_outbox_sent on millpond_outbox (queue_id, sent_at, message_id);
create index millpond_log_sent on millpond_log (partition, sent_at, message_id) where via_outbox = 1;

alter table millpond_outbox add column retry_of blob;

-- Why a message entered the log through the outbox; null: it was sent straight to the log.
alter table millpond_log add column reason text;

alter table millpond_event add column run integer;

alter table millpond_event add column count integer not null default 1;

alter table millpond_event add column retry_of blob;

alter table millpond_event add column name text;

create index millpond_event_queue on millpond_event (queue_id, at);

alter table millpond_worker add column facts text;

alter table millpond_worker add column wish text;
