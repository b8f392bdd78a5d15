-- name: duty_take
-- Takes a duty, or keeps it; changes nothing while another node has it. The end is written last: what is compared before is
-- the stored one. What is there is served by the primary key.
insert into millpond_upkeep (duty, owner, until) values ($1, $2, $now + $3)
on duplicate key update owner = if(owner = values(owner) or until <= $now, values(owner), owner),
                        until = if(owner = values(owner), values(until), until);

-- name: retention_look
-- All that a round of upkeep must know; no row unless this node has the duty. A row for each queue, or one for none: the queue
-- with its settings; the time; of what could be deleted of its log, the oldest; and then, alike in every row, the oldest of
-- the inbox, the history, the events, the dedup keys, the workers, the audit but its last line, and the dead letters; whether
-- there are markers below another claim, added counters, and marks; the oldest counter by the minute and by the quarter.
-- Walks the queues, the workers, the claims, the marks and the counters by the minute, a day of them for each queue and kind.
-- Each of the others is one row at the end of its index: the primary keys, log_partition_part, inbox_committed,
-- history_finished, event_at, dedup_expires, dead_letter_died.
select q.id, q.name, q.settings, q.delivery, $now,
       (select min(coalesce((select l.published_at from millpond_log l
                             where l.`partition` = p.id and l.log_offset = p.first_offset), 0))
        from millpond_log_partition p
        join millpond_subscription s on s.queue_id = p.queue_id and s.name = ''
        where p.queue_id = q.id
              and p.first_offset < p.next_offset - 1
              and p.first_offset <= (select max(c.to_offset) from millpond_claim c
                                     where c.subscription_id = s.id and c.`partition` = p.id)),
       (select min(committed_at) from millpond_inbox),
       (select min(finished_at) from millpond_history),
       (select min(at) from millpond_event),
       (select min(expires_at) from millpond_dedup),
       (select min(if(stopped, 0, lease_until)) from millpond_worker),
       (select a.at from millpond_audit a where a.number < (select max(number) from millpond_audit)
        order by a.number limit 1),
       (select d.died_at from millpond_dead_letter d where d.hook <> 'pending' order by d.died_at limit 1),
       exists (select 1 from millpond_claim c
               where c.token is null
                     and c.to_offset < (select max(h.to_offset) from millpond_claim h
                                        where h.subscription_id = c.subscription_id and h.`partition` = c.`partition`)),
       exists (select 1 from millpond_stat_delta),
       exists (select 1 from millpond_cancel),
       (select min(minute) from millpond_stat where minute > 0),
       (select min((select min(r.quarter) from millpond_stat_quarter r
                    where r.queue_id = t.queue_id and r.kind = t.kind))
        from millpond_stat t where t.minute = 0)
from millpond_upkeep u
left join millpond_queue q on true
where u.duty = $1 and u.owner = $2;

-- name: retention_partitions
-- Every part of every queue; a handful of rows.
-- Walks the subscriptions; their parts are served by log_partition_part.
select p.id, p.queue_id, p.first_offset, s.id
from millpond_log_partition p
join millpond_subscription s on s.queue_id = p.queue_id and s.name = '';

-- name: retention_live_claims
-- What is under lease in a partition: the lowest offset of each claim that is not settled.
-- Served by the primary key.
select c.to_offset, c.from_offset, c.done from millpond_claim c
where c.subscription_id = $1 and c.`partition` = $2 and c.token is not null;

-- name: partition_first_offset
-- Served by the primary key.
update millpond_log_partition set first_offset = $2 where id = $1;

-- name: history_delete
-- Served by history_finished.
delete from millpond_history where finished_at < $1 order by finished_at limit $2;

-- name: event_delete
-- Served by event_at.
delete from millpond_event where at < $1 order by at limit $2;

-- name: dedup_delete
-- Served by dedup_expires. Keys that a send holds at this moment are left alone.
select dedup_key, queue_id from millpond_dedup where expires_at <= $1 order by expires_at limit $2 for update skip locked;

-- name: dedup_drop
-- Served by the primary key.
delete from millpond_dedup where queue_id = $1 and dedup_key in ($2);

-- name: inbox_delete
-- Only what nobody can be given again: it waits nowhere, and no live claim is old enough to hold it.
-- Served by inbox_committed; the rest by the keys of the other tables, row by row: what is counted is not read whole first.
select i.message_id from millpond_inbox i force index (inbox_committed)
where i.committed_at < $2 and i.subscription_id = $1
      and (select count(*) from millpond_outbox o where o.message_id = i.message_id) = 0
      and (select count(*) from millpond_log_returned r where r.message_id = i.message_id) = 0
      and not exists (select 1 from millpond_claim c
                      where c.subscription_id = i.subscription_id and c.token is not null
                            and c.leased_at <= i.committed_at)
order by i.committed_at
limit $3;

-- name: inbox_drop
-- Served by the primary key.
delete from millpond_inbox where subscription_id = $1 and message_id in ($2);

-- name: worker_delete
-- Walks the workers, which are few.
delete from millpond_worker where stopped or lease_until < $1 limit $2;

-- name: marker_old
-- Markers that two settles and a lease left behind; the highest claim of a partition stays (R7).
-- Walks the claims; the higher one is served by the primary key.
select c.subscription_id, c.`partition`, c.to_offset from millpond_claim c
where c.token is null
      and exists (select 1 from millpond_claim h
                  where h.subscription_id = c.subscription_id and h.`partition` = c.`partition`
                        and h.to_offset > c.to_offset)
limit $1;

-- name: stat_fold
-- Sums what transactions have added into the counters of the minute. Served by the primary key.
insert into millpond_stat (queue_id, kind, minute, sent, leased, done, retried, dead, recovered, run)
select queue_id, kind, minute, sum(sent), sum(leased), sum(done), sum(retried), sum(dead),
       sum(recovered), sum(run)
from millpond_stat_delta where id in ($1) group by 1, 2, 3
on duplicate key update
    sent = millpond_stat.sent + values(sent), leased = millpond_stat.leased + values(leased),
    done = millpond_stat.done + values(done), retried = millpond_stat.retried + values(retried),
    dead = millpond_stat.dead + values(dead), recovered = millpond_stat.recovered + values(recovered),
    run = millpond_stat.run + values(run);

-- name: stat_fold_pick
-- What no open transaction has just added. Served by the primary key.
select id from millpond_stat_delta order by id limit $1 for update skip locked;

-- name: stat_fold_drop
-- Served by the primary key.
delete from millpond_stat_delta where id in ($1);

-- name: stat_fold_day
-- Sums counters older than a day by the quarter of an hour.
-- Walks the counters: a day of minutes for each queue and kind.
insert into millpond_stat_quarter (queue_id, kind, quarter, sent, leased, done, retried, dead, recovered, run)
select queue_id, kind, minute div 15, sum(sent), sum(leased), sum(done), sum(retried), sum(dead), sum(recovered), sum(run)
from millpond_stat where minute > 0 and minute < $1 group by 1, 2, 3
on duplicate key update
    sent = millpond_stat_quarter.sent + values(sent), leased = millpond_stat_quarter.leased + values(leased),
    done = millpond_stat_quarter.done + values(done), retried = millpond_stat_quarter.retried + values(retried),
    dead = millpond_stat_quarter.dead + values(dead), recovered = millpond_stat_quarter.recovered + values(recovered),
    run = millpond_stat_quarter.run + values(run);

-- name: stat_fold_all
-- And into minute 0. Walks the same counters.
insert into millpond_stat (queue_id, kind, minute, sent, leased, done, retried, dead, recovered, run)
select queue_id, kind, 0, sum(sent), sum(leased), sum(done), sum(retried), sum(dead), sum(recovered), sum(run)
from (select * from millpond_stat where minute > 0 and minute < $1) old group by 1, 2
on duplicate key update
    sent = millpond_stat.sent + values(sent), leased = millpond_stat.leased + values(leased),
    done = millpond_stat.done + values(done), retried = millpond_stat.retried + values(retried),
    dead = millpond_stat.dead + values(dead), recovered = millpond_stat.recovered + values(recovered),
    run = millpond_stat.run + values(run);

-- name: stat_drop_day
-- Walks the same counters.
delete from millpond_stat where minute > 0 and minute < $1;

-- name: quarter_delete
-- Walks the counters by the quarter: 90 days of them for each queue and kind.
delete from millpond_stat_quarter where quarter < $1 limit $2;

-- name: audit_delete
-- From the first line up; the last one stays, because the next is chained to it. Served by the primary key.
delete from millpond_audit
where at < $1 and number < (select last.number from (select max(number) as number from millpond_audit) last)
order by number limit $2;

-- name: dead_letter_delete
-- One whose hook is to be called still is kept. Served by dead_letter_died.
delete from millpond_dead_letter where died_at < $1 and hook <> 'pending' order by died_at limit $2;

-- name: cancel_mark_old
-- Marks of messages that are in no claim and not beyond the cursor any more.
-- Walks the marks, which are few; the rest is served by primary keys.
select x.subscription_id, x.`partition`, x.log_offset from millpond_cancel x
where x.log_offset <= (select max(c.to_offset) from millpond_claim c
                       where c.subscription_id = x.subscription_id and c.`partition` = x.`partition`)
      and not exists (select 1 from millpond_claim c
                      where c.subscription_id = x.subscription_id and c.`partition` = x.`partition`
                            and c.token is not null and c.from_offset <= x.log_offset
                            and c.to_offset >= x.log_offset)
limit $1;
