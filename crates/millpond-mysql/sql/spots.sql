-- name: spot_parts
-- Every part of every queue, with its cursor and its end; a handful of rows.
-- Served by log_partition_part and subscription_name, cursors by the primary key.
select p.id, p.queue_id, p.class, p.lane, p.first_offset, s.id, p.next_offset,
       coalesce((select max(c.to_offset) from millpond_claim c where c.subscription_id = s.id and c.`partition` = p.id), -1)
from millpond_log_partition p
join millpond_subscription s on s.queue_id = p.queue_id and s.name = ''
where p.queue_id in ($1)
order by p.id;

-- name: spot_live
-- What is under lease in a part. Served by the primary key.
select from_offset, to_offset, worker, leased_at, done, runs from millpond_claim
where subscription_id = $1 and `partition` = $2 and token is not null;

-- name: spot_cancelled
-- Cancelled messages that no lease has passed yet. Served by the primary key.
select log_offset from millpond_cancel where subscription_id = $1 and `partition` = $2 and log_offset > $3;

-- name: spot_ended
-- The only finished claim that can have held an offset. Served by history_range.
select from_offset, to_offset, worker, leased_at, runs from millpond_history
where `partition` = $1 and to_offset >= $2
order by to_offset limit 1;

-- name: spot_left
-- Whether a message has a row that came after one of the log, or ended there without being done. Served by the unique
-- keys of outbox and dead letters, by log_message and event_message; the one row by its primary key.
select exists (select 1 from millpond_outbox where message_id = $1)
       or exists (select 1 from millpond_dead_letter where message_id = $1)
       or exists (select 1 from millpond_log_returned r
                  join millpond_log l on l.`partition` = r.`partition` and l.log_offset = r.log_offset
                  where r.message_id = $1
                        and l.published_at >= (select o.published_at from millpond_log o
                                               where o.`partition` = $2 and o.log_offset = $3)
                        and (l.`partition` <> $2 or l.log_offset > $3))
       or exists (select 1 from millpond_event e
                  where e.message_id = $1
                        and (e.kind = 'DLQ'
                             or (e.kind in ('RETRY', 'RECOVER')
                                 and e.attempt + e.releases > (select coalesce(o.attempt, 0) + coalesce(o.releases, 0)
                                                               from millpond_log o
                                                               where o.`partition` = $2 and o.log_offset = $3))));

-- name: outbox_spots
-- Served by outbox_sent, which is its order.
select message_id, queue_id, class, sent_at, attempt, releases, attempts_max, retry_until, kind, `key`,
       seq, reason, ready_at, last_error, case when reason in ('tx', 'delay') then retry_of end
from millpond_outbox
where queue_id = $1 and sent_at <= $2 and (sent_at < $2 or message_id < $3) and sent_at >= $4
order by sent_at desc, message_id desc
limit $5;

-- name: dead_letter_spots
-- Served by dead_letter_sent, which is its order.
select message_id, queue_id, class, sent_at, attempt, releases, attempts_max, null, kind, `key`,
       id, reason, detail, worker, retry_of
from millpond_dead_letter
where queue_id = $1 and sent_at <= $2 and (sent_at < $2 or message_id < $3) and sent_at >= $4
order by sent_at desc, message_id desc
limit $5;

-- name: log_sent_spots
-- What came through the outbox. Served by log_sent, which is its order; the rest by primary keys.
select l.message_id, p.queue_id, p.class, l.sent_at, coalesce(l.attempt, 0), coalesce(l.releases, 0), l.attempts_max,
       l.retry_until, l.kind, l.`key`, l.log_offset, l.published_at, true, l.reason
from millpond_log_returned r
join millpond_log l on l.`partition` = r.`partition` and l.log_offset = r.log_offset
join millpond_log_partition p on p.id = l.`partition`
where r.`partition` = $1 and r.sent_at <= $2 and (r.sent_at < $2 or r.message_id < $3) and r.sent_at >= $4
      and r.log_offset >= $6
order by r.sent_at desc, r.message_id desc
limit $5;

-- name: log_spots
-- A range of one part, from its end. Served by the primary key.
select l.message_id, p.queue_id, p.class, coalesce(l.sent_at, l.published_at), coalesce(l.attempt, 0),
       coalesce(l.releases, 0), l.attempts_max, l.retry_until, l.kind, l.`key`, l.log_offset, l.published_at,
       coalesce(l.via_outbox, false), l.reason
from millpond_log l
join millpond_log_partition p on p.id = l.`partition`
where l.`partition` = $1 and l.log_offset between $2 and $3
order by l.log_offset desc
limit $4;

-- name: outbox_content
-- Served by the primary key.
select content_type, headers, case when $2 then body end from millpond_outbox where seq = $1;

-- name: dead_letter_content
-- Served by the primary key.
select content_type, headers, case when $2 then body end from millpond_dead_letter where id = $1;

-- name: log_content
-- Served by the primary key.
select content_type, headers, case when $3 then body end from millpond_log where `partition` = $1 and log_offset = $2;
