-- name: duty_take
-- Takes a duty, or keeps it; changes nothing while another node has it. What is there is served by the primary key.
insert into millpond_upkeep (duty, owner, until) values (:duty, :owner, :until)
on conflict (duty) do update set owner = excluded.owner, until = excluded.until
where owner = excluded.owner or until <= :now;

-- name: retention_partitions
-- Every part of every queue; a handful of rows.
-- Walks the subscriptions; their parts are served by millpond_log_partition_part.
select p.id, p.queue_id, p.first_offset, s.id
from millpond_log_partition p
join millpond_subscription s on s.queue_id = p.queue_id and s.name = '';

-- name: retention_live_claims
-- What is under lease in a partition. Served by the primary key.
select from_offset, done from millpond_claim
where subscription_id = ?1 and partition = ?2 and token is not null;

-- name: log_delete
-- By range, so that nothing searches through what was deleted before. Served by the primary key.
delete from millpond_log where partition = ?1 and log_offset >= ?2 and log_offset < ?3;

-- name: partition_first_offset
-- Served by the primary key.
update millpond_log_partition set first_offset = ?2 where id = ?1;

-- name: history_delete
-- Served by millpond_history_finished.
delete from millpond_history where id in (
    select id from millpond_history where finished_at < :before order by finished_at limit :rows_max
);

-- name: event_delete
-- Served by millpond_event_at.
delete from millpond_event where id in (
    select id from millpond_event where at < :before order by at limit :rows_max
);

-- name: dedup_expired
-- Served by millpond_dedup_expires.
select queue_id, dedup_key from millpond_dedup where expires_at <= :before order by expires_at limit :rows_max;

-- name: dedup_delete
-- One by one: IN over a pair of columns would walk the whole table. Served by the primary key.
delete from millpond_dedup where queue_id = ?1 and dedup_key = ?2;

-- name: inbox_past
-- Only what nobody can be given again: it waits nowhere, and no live claim is old enough to hold it. The sign
-- keeps the search on millpond_inbox_committed; the rest is served by the keys of the other tables.
select i.subscription_id, i.message_id from millpond_inbox i
where i.committed_at < :before and +i.subscription_id = :subscription
      and not exists (select 1 from millpond_outbox o where o.message_id = i.message_id)
      and not exists (select 1 from millpond_log l where l.message_id = i.message_id and l.via_outbox = 1)
      and not exists (select 1 from millpond_claim c
                      where c.subscription_id = i.subscription_id and c.token is not null
                            and c.leased_at <= i.committed_at)
order by i.committed_at
limit :rows_max;

-- name: inbox_delete
-- Served by the primary key.
delete from millpond_inbox where subscription_id = ?1 and message_id = ?2;

-- name: worker_delete
-- The one that was seen last stays: the store's clock goes on from it after a restart.
-- Walks the workers, which are few.
delete from millpond_worker where id in (
    select id from millpond_worker
    where (stopped = 1 or lease_until < :before) and seen_at < (select max(seen_at) from millpond_worker)
    limit :rows_max
);

-- name: marker_delete
-- Markers that two settles and a lease left behind; the highest claim of a partition stays (R7).
-- Walks the claims; the higher one is served by the primary key.
delete from millpond_claim where (subscription_id, partition, to_offset) in (
    select c.subscription_id, c.partition, c.to_offset
    from millpond_claim c
    where c.token is null
          and exists (select 1 from millpond_claim h
                      where h.subscription_id = c.subscription_id and h.partition = c.partition
                            and h.to_offset > c.to_offset)
    limit :rows_max
);

-- name: stat_old
-- Reads the counters once: a day of minutes for each queue and kind.
select queue_id, kind, minute, sent, leased, done, retried, dead, recovered, run from millpond_stat
where minute > 0 and minute < :before
limit :rows_max;

-- name: stat_delete
-- Served by the primary key.
delete from millpond_stat where queue_id = ?1 and kind = ?2 and minute = ?3;

-- name: quarter_delete
-- Walks the counters by the quarter: 90 days of them for each queue and kind.
delete from millpond_stat_quarter where (queue_id, kind, quarter) in (
    select queue_id, kind, quarter from millpond_stat_quarter where quarter < :before limit :rows_max
);

-- name: audit_delete
-- From the first line up; the last one stays, because the next is chained to it. Served by the primary key.
delete from millpond_audit where number in (
    select number from millpond_audit
    where at < :before and number < (select max(number) from millpond_audit)
    order by number limit :rows_max
);

-- name: dead_letter_delete
-- One whose hook is to be called still is kept. Served by millpond_dead_letter_died.
delete from millpond_dead_letter where id in (
    select id from millpond_dead_letter where died_at < :before and hook != 'pending' order by died_at limit :rows_max
);

-- name: cancel_mark_delete
-- Marks of messages that are in no claim and not beyond the cursor any more.
-- Walks the marks, which are few; the rest is served by primary keys.
delete from millpond_cancel where (subscription_id, partition, log_offset) in (
    select x.subscription_id, x.partition, x.log_offset
    from millpond_cancel x
    where x.log_offset <= (select c.to_offset from millpond_claim c
                           where c.subscription_id = x.subscription_id and c.partition = x.partition
                           order by c.to_offset desc limit 1)
          and not exists (select 1 from millpond_claim c
                          where c.subscription_id = x.subscription_id and c.partition = x.partition
                                and c.token is not null and c.from_offset <= x.log_offset
                                and c.to_offset >= x.log_offset)
    limit :rows_max
);
