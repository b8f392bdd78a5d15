-- 0002_operations
-- Why:      what operators change at run time (settings, pauses, cancellations, wishes of workers) and who did; lists,
--           groups and trends of what happened; and the functions that work on all of it.
-- Breaking: no. Nodes of an earlier release go on; what they write lacks the new columns.
-- Locks:    each altered table for a moment; outbox, log and dead letters while their indexes are made.

create table millpond.setting_change (
    queue_id   integer not null,
    changed_at bigint  not null,
    setting    text collate "C" not null,
    value      text    not null,
    actor      text    not null,
    primary key (queue_id, setting)
);

-- Queue 0 stands for all of them.
create table millpond.pause (
    queue_id  integer primary key,
    reason    text,
    actor     text   not null,
    paused_at bigint not null,
    until     bigint
);

-- The queues that have a limit over all nodes: one row while they have, so that a lease of another queue only sees that
-- there is none. When the bucket of the rate is full again; without a rate it says nothing.
create table millpond.queue_limit (
    queue_id integer primary key,
    full_at  bigint not null
);

-- Messages in the log that are not to be worked on (ready) or to be stopped (leased).
create table millpond.cancel (
    subscription_id integer not null,
    partition       integer not null,
    log_offset      bigint  not null,
    asked_at        bigint  not null,
    actor           text    not null,
    reason          text,
    primary key (subscription_id, partition, log_offset)
);

create table millpond.audit (
    number bigint primary key,
    at     bigint not null,
    count  bigint not null,
    actor  text   not null,
    verb   text   not null,
    object text   not null,
    reason text,
    hash   bytea  not null
);

-- The six counts by the quarter of an hour, for trends; stat keeps a day by the minute and one total.
create table millpond.stat_quarter (
    queue_id  integer not null,
    quarter   integer not null,
    sent      bigint  not null default 0,
    leased    bigint  not null default 0,
    done      bigint  not null default 0,
    retried   bigint  not null default 0,
    dead      bigint  not null default 0,
    recovered bigint  not null default 0,
    run       bigint  not null default 0,
    kind      text collate "C" not null,
    primary key (queue_id, kind, quarter)
);

-- Raised by every change of a declaration, a setting or a pause.
create table millpond.declarations (
    only_one integer primary key check (only_one = 1),
    number   bigint not null
);

insert into millpond.declarations (only_one, number) values (1, 1);

alter table millpond.stat add column run bigint not null default 0;
alter table millpond.stat_delta add column run bigint not null default 0;

alter table millpond.dead_letter
    add column redriven_at bigint,
    add column retry_of    uuid,
    add column error_class text,
    add column fingerprint text,
    add column worker      text;

create index dead_letter_died on millpond.dead_letter (died_at);
create index dead_letter_sent on millpond.dead_letter (queue_id, sent_at, message_id);
create index dead_letter_open on millpond.dead_letter (queue_id) where redriven_as is null;
create index dead_letter_redriven on millpond.dead_letter (redriven_as) where redriven_as is not null;

-- For counts and lists: nothing reads a body to know where a message is.
create index outbox_state on millpond.outbox (queue_id, ready_at, seq, reason, attempt);
create index outbox_sent on millpond.outbox (queue_id, sent_at, message_id);
create index log_sent on millpond.log (partition, sent_at, message_id) where via_outbox;

alter table millpond.outbox add column retry_of uuid;

-- Why a message entered the log through the outbox; null: it was sent straight to the log.
alter table millpond.log add column reason text;

-- message_id is null where an entry speaks of many messages.
alter table millpond.event
    alter column message_id drop not null,
    add column run      bigint,
    add column count    bigint not null default 1,
    add column retry_of uuid,
    add column name     text;

create index event_queue on millpond.event (queue_id, at);

alter table millpond.worker add column facts text, add column wish text;

-- Ends the statement of a process that knows fewer migrations than there are. The lock on the table that reading it
-- takes is held to the end of the transaction: a migration takes the whole table, so no commit comes after it.
create function millpond.still_ours(a_known integer) returns boolean
language plpgsql set enable_seqscan = off as $$
declare
    a_last integer;
begin
    select max(m.number) into a_last from millpond.migration m;
    if a_known < a_last then
        raise exception using errcode = 'MP001', message = format(
            'another process brought it to migration %s; this release knows %s and no later one', a_last, a_known);
    end if;
    return true;
end
$$;

-- The partition of a part of a queue, made if it is new.
create function millpond.partition_of(a_queue integer, a_class smallint, a_lane smallint) returns integer
language plpgsql set enable_seqscan = off as $$
declare
    found_id integer;
begin
    for attempts in 1..2 loop
        select p.id into found_id from millpond.log_partition p
        where p.queue_id = a_queue and p.class = a_class and p.lane = a_lane and p.route = '';
        exit when found_id is not null;
        -- Another transaction may make it at the same moment: the second look finds it.
        insert into millpond.log_partition (queue_id, class, lane, subscription_id)
        values (a_queue, a_class, a_lane, case when a_lane = 0 then null else
            (select s.id from millpond.subscription s where s.queue_id = a_queue and s.name = '') end)
        on conflict do nothing
        returning id into found_id;
        exit when found_id is not null;
    end loop;
    return found_id;
end
$$;
