-- name: retention_look
-- All that a round of upkeep must know. This node takes the duty, or keeps it; there is no row while another one has it. A row
-- for each queue, or one for none: the queue with its settings and changes; the time; of what could be deleted of its log, the
-- oldest; and then, alike in every row, the oldest of the inbox, the history, the events, the dedup keys, the workers, the
-- audit but its last line, and the dead letters; whether there are markers below another claim, added counters, and marks; the
-- oldest counter by the minute and by the quarter.
-- Walks the queues, the workers, the claims, the marks and the counters by the minute, a day of them for each queue and kind.
-- Each of the others is one row at the end of its index: the primary keys, log_partition_part, inbox_committed,
-- history_finished, event_at, dedup_expires, dead_letter_died.
with duty as (
    insert into millpond.upkeep as u (duty, owner, until)
    values ($1, $2, millpond.time_of($3) + $4)
    on conflict (duty) do update set owner = excluded.owner, until = excluded.until
    where u.owner = excluded.owner or u.until <= millpond.time_of($3)
    returning 1
)
select q.id, q.name, q.settings, q.delivery,
       (select array_agg(c.setting) from millpond.setting_change c where c.queue_id = q.id),
       (select array_agg(c.value) from millpond.setting_change c where c.queue_id = q.id),
       millpond.time_of($3),
       (select min(coalesce((select l.published_at from millpond.log l
                             where l.partition = p.id and l.log_offset = p.first_offset), 0))
        from millpond.log_partition p
        join millpond.subscription s on s.queue_id = p.queue_id and s.name = ''
        where p.queue_id = q.id
              and p.first_offset < (select max(l.log_offset) from millpond.log l where l.partition = p.id)
              and p.first_offset <= (select max(c.to_offset) from millpond.claim c
                                     where c.subscription_id = s.id and c.partition = p.id)),
       (select min(committed_at) from millpond.inbox),
       (select min(finished_at) from millpond.history),
       (select min(at) from millpond.event),
       (select min(expires_at) from millpond.dedup),
       (select min(case when stopped then 0 else lease_until end) from millpond.worker),
       (select a.at from millpond.audit a where a.number < (select max(number) from millpond.audit)
        order by a.number limit 1),
       (select d.died_at from millpond.dead_letter d where d.hook <> 'pending' order by d.died_at limit 1),
       exists (select 1 from millpond.claim c
               where c.token is null
                     and c.to_offset < (select max(h.to_offset) from millpond.claim h
                                        where h.subscription_id = c.subscription_id and h.partition = c.partition)),
       exists (select 1 from millpond.stat_delta),
       exists (select 1 from millpond.cancel),
       (select min(minute) from millpond.stat where minute > 0),
       (select min((select min(r.quarter) from millpond.stat_quarter r
                    where r.queue_id = t.queue_id and r.kind = t.kind))
        from millpond.stat t where t.minute = 0)
from duty
left join millpond.queue q on true;

-- name: retention_partitions
-- Every part of every queue; a handful of rows.
-- Walks the subscriptions; their parts are served by log_partition_part.
select p.id, p.queue_id, p.first_offset, s.id
from millpond.log_partition p
join millpond.subscription s on s.queue_id = p.queue_id and s.name = '';

-- name: retention_live_claims
-- What is under lease in a partition: the lowest offset of each claim that is not settled.
-- Served by the primary key.
select c.to_offset, c.from_offset, c.done from millpond.claim c
where c.subscription_id = $1 and c.partition = $2 and c.token is not null;

-- name: partition_first_offset
-- Served by the primary key.
update millpond.log_partition set first_offset = $2 where id = $1;

-- name: history_delete
-- Served by history_finished.
delete from millpond.history where id = any (array(
    select h.id from millpond.history h where h.finished_at < $1 order by h.finished_at limit $2
));

-- name: event_delete
-- Served by event_at.
delete from millpond.event where id = any (array(
    select e.id from millpond.event e where e.at < $1 order by e.at limit $2
));

-- name: dedup_delete
-- Served by dedup_expires, then by the place of each row. Keys that a send holds at this moment are left alone.
delete from millpond.dedup where ctid = any (array(
    select d.ctid from millpond.dedup d where d.expires_at <= $1 order by d.expires_at limit $2 for update skip locked
));

-- name: inbox_delete
-- Only what nobody can be given again: it waits nowhere, and no live claim is old enough to hold it.
-- Served by inbox_committed, then by the place of each row; the rest is served by the keys of the other tables, row by row:
-- `offset 0` keeps the planner from joining them, and BEGIN_IN_ORDER from sorting.
delete from millpond.inbox where ctid = any (array(
    select i.ctid from millpond.inbox i
    where i.committed_at < $2 and i.subscription_id = $1
          and not exists (select 1 from millpond.outbox o where o.message_id = i.message_id offset 0)
          and not exists (select 1 from millpond.log l where l.message_id = i.message_id and l.via_outbox offset 0)
          and not exists (select 1 from millpond.claim c
                          where c.subscription_id = i.subscription_id and c.token is not null
                                and c.leased_at <= i.committed_at
                          offset 0)
    order by i.committed_at
    limit $3
));

-- name: worker_delete
-- Walks the workers, which are few.
delete from millpond.worker where id = any (array(
    select w.id from millpond.worker w where w.stopped or w.lease_until < $1 limit $2
));

-- name: marker_delete
-- Markers that two settles and a lease left behind; the highest claim of a partition stays (R7).
-- Walks the claims; the higher one is served by the primary key.
delete from millpond.claim where ctid = any (array(
    select c.ctid from millpond.claim c
    where c.token is null
          and exists (select 1 from millpond.claim h
                      where h.subscription_id = c.subscription_id and h.partition = c.partition
                            and h.to_offset > c.to_offset)
    limit $1
)) and token is null;

-- name: stat_fold
-- Sums what transactions have added into the counters of the minute. Reads what was added since the last time.
with gone as (
    delete from millpond.stat_delta where ctid = any (array(select d.ctid from millpond.stat_delta d limit $1))
    returning *
), summed as (
    insert into millpond.stat as s (queue_id, kind, minute, sent, leased, done, retried, dead, recovered, run)
    select queue_id, kind, minute, sum(sent), sum(leased), sum(done), sum(retried), sum(dead), sum(recovered), sum(run)
    from gone group by 1, 2, 3
    on conflict (queue_id, kind, minute) do update
    set sent = s.sent + excluded.sent, leased = s.leased + excluded.leased, done = s.done + excluded.done,
        retried = s.retried + excluded.retried, dead = s.dead + excluded.dead,
        recovered = s.recovered + excluded.recovered, run = s.run + excluded.run
)
select count(*) from gone;

-- name: stat_fold_day
-- Sums counters older than a day by the quarter of an hour, and into minute 0.
-- Walks the counters: a day of minutes for each queue and kind.
with gone as (
    delete from millpond.stat where ctid = any (array(
        select d.ctid from millpond.stat d where d.minute > 0 and d.minute < $1 limit $2
    ))
    returning *
), quarters as (
    insert into millpond.stat_quarter as s (queue_id, kind, quarter, sent, leased, done, retried, dead, recovered, run)
    select queue_id, kind, minute / 15, sum(sent), sum(leased), sum(done), sum(retried), sum(dead), sum(recovered), sum(run)
    from gone group by 1, 2, 3
    on conflict (queue_id, kind, quarter) do update
    set sent = s.sent + excluded.sent, leased = s.leased + excluded.leased, done = s.done + excluded.done,
        retried = s.retried + excluded.retried, dead = s.dead + excluded.dead,
        recovered = s.recovered + excluded.recovered, run = s.run + excluded.run
), total as (
    insert into millpond.stat as s (queue_id, kind, minute, sent, leased, done, retried, dead, recovered, run)
    select queue_id, kind, 0, sum(sent), sum(leased), sum(done), sum(retried), sum(dead), sum(recovered), sum(run)
    from gone group by 1, 2
    on conflict (queue_id, kind, minute) do update
    set sent = s.sent + excluded.sent, leased = s.leased + excluded.leased, done = s.done + excluded.done,
        retried = s.retried + excluded.retried, dead = s.dead + excluded.dead,
        recovered = s.recovered + excluded.recovered, run = s.run + excluded.run
)
select count(*) from gone;

-- name: quarter_delete
-- Walks the counters by the quarter: 90 days of them for each queue and kind.
delete from millpond.stat_quarter where ctid = any (array(
    select q.ctid from millpond.stat_quarter q where q.quarter < $1 limit $2
));

-- name: audit_delete
-- From the first line up; the last one stays, because the next is chained to it. Served by the primary key.
delete from millpond.audit where number = any (array(
    select a.number from millpond.audit a
    where a.at < $1 and a.number < (select max(number) from millpond.audit)
    order by a.number limit $2
));

-- name: dead_letter_delete
-- One whose hook is to be called still is kept. Served by dead_letter_died.
delete from millpond.dead_letter where id = any (array(
    select d.id from millpond.dead_letter d where d.died_at < $1 and d.hook <> 'pending' order by d.died_at limit $2
));

-- name: cancel_mark_delete
-- Marks of messages that are in no claim and not beyond the cursor any more.
-- Walks the marks, which are few; the rest is served by primary keys.
delete from millpond.cancel where ctid = any (array(
    select x.ctid from millpond.cancel x
    where x.log_offset <= (select c.to_offset from millpond.claim c
                           where c.subscription_id = x.subscription_id and c.partition = x.partition
                           order by c.to_offset desc limit 1)
          and not exists (select 1 from millpond.claim c
                          where c.subscription_id = x.subscription_id and c.partition = x.partition
                                and c.token is not null and c.from_offset <= x.log_offset
                                and c.to_offset >= x.log_offset)
    limit $1
));
