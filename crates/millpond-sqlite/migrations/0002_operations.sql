-- What operators change at run time: settings, pauses, cancellations, wishes of workers; and who changed what.

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

alter table millpond_dead_letter add column class text;

alter table millpond_dead_letter add column fingerprint text;

alter table millpond_dead_letter add column worker text;

alter table millpond_dead_letter add column retry_of blob;

alter table millpond_dead_letter add column redriven_at integer;

alter table millpond_outbox add column retry_of blob;

-- Why a message entered the log through the outbox; null: it was sent straight to the log.
alter table millpond_log add column reason text;

alter table millpond_event add column run integer;

alter table millpond_event add column count integer not null default 1;

alter table millpond_event add column retry_of blob;

alter table millpond_event add column name text;

alter table millpond_worker add column facts text;

alter table millpond_worker add column wish text;
