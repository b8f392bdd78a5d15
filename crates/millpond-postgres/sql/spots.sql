-- name: spot_parts
-- Every part of every queue, with its cursor and its end; a handful of rows.
-- Walks the subscriptions; their parts are served by log_partition_part, cursors and ends by primary keys.
select p.id, p.queue_id, p.class, p.lane, p.first_offset, s.id,
       coalesce((select l.log_offset + 1 from millpond.log l where l.partition = p.id order by l.log_offset desc limit 1), 0),
       coalesce((select c.to_offset from millpond.claim c where c.subscription_id = s.id and c.partition = p.id
                 order by c.to_offset desc limit 1), -1)
from millpond.log_partition p
join millpond.subscription s on s.queue_id = p.queue_id and s.name = ''
where p.queue_id = any ($1)
order by p.id;

-- name: spot_live
-- What is under lease in a part. Served by the primary key.
select from_offset, to_offset, worker, leased_at, done, runs from millpond.claim
where subscription_id = $1 and partition = $2 and token is not null;

-- name: spot_cancelled
-- Cancelled messages that no lease has passed yet. Served by the primary key.
select log_offset from millpond.cancel where subscription_id = $1 and partition = $2 and log_offset > $3;

-- name: spot_ended
-- The only finished claim that can have held an offset. Served by history_range.
select from_offset, to_offset, worker, leased_at, runs from millpond.history
where partition = $1 and to_offset >= $2
order by to_offset limit 1;

-- name: spot_left
-- Whether a message has a row that came after one of the log, or ended there without being done. Served by the unique
-- indexes of outbox and dead letters, by log_message and event_message; the one row by its primary key.
select exists (select 1 from millpond.outbox where message_id = $1)
       or exists (select 1 from millpond.dead_letter where message_id = $1)
       or exists (select 1 from millpond.log l
                  where l.message_id = $1 and l.via_outbox
                        and l.published_at >= (select o.published_at from millpond.log o
                                               where o.partition = $2 and o.log_offset = $3)
                        and (l.partition <> $2 or l.log_offset > $3))
       or exists (select 1 from millpond.event e
                  where e.message_id = $1
                        and (e.kind = 'DLQ'
                             or (e.kind in ('RETRY', 'RECOVER')
                                 and e.attempt + e.releases > (select coalesce(o.attempt, 0) + coalesce(o.releases, 0)
                                                               from millpond.log o
                                                               where o.partition = $2 and o.log_offset = $3))));

-- name: outbox_spots
-- Served by outbox_sent, which is its order.
select message_id, queue_id, class, sent_at, attempt, releases, attempts_max, retry_until, kind, key,
       seq, reason, ready_at, last_error, case when reason in ('tx', 'delay') then retry_of end
from millpond.outbox
where queue_id = $1 and (sent_at, message_id) < ($2, $3) and sent_at >= $4
order by sent_at desc, message_id desc
limit $5;

-- name: dead_letter_spots
-- Served by dead_letter_sent, which is its order.
select message_id, queue_id, class, sent_at, attempt, releases, attempts_max, null::bigint, kind, key,
       id, reason, detail, worker, retry_of
from millpond.dead_letter
where queue_id = $1 and (sent_at, message_id) < ($2, $3) and sent_at >= $4
order by sent_at desc, message_id desc
limit $5;

-- name: log_sent_spots
-- What came through the outbox. Served by log_sent, which is its order; its part by the primary key.
select l.message_id, p.queue_id, p.class, l.sent_at, coalesce(l.attempt, 0), coalesce(l.releases, 0), l.attempts_max,
       l.retry_until, l.kind, l.key, l.log_offset, l.published_at, true, l.reason
from millpond.log l
join millpond.log_partition p on p.id = l.partition
where l.partition = $1 and l.via_outbox and (l.sent_at, l.message_id) < ($2, $3) and l.sent_at >= $4
      and l.log_offset >= $6
order by l.sent_at desc, l.message_id desc
limit $5;

-- name: log_spots
-- A range of one part, from its end. Served by the primary key.
select l.message_id, p.queue_id, p.class, coalesce(l.sent_at, l.published_at), coalesce(l.attempt, 0),
       coalesce(l.releases, 0), l.attempts_max, l.retry_until, l.kind, l.key, l.log_offset, l.published_at,
       coalesce(l.via_outbox, false), l.reason
from millpond.log l
join millpond.log_partition p on p.id = l.partition
where l.partition = $1 and l.log_offset between $2 and $3
order by l.log_offset desc
limit $4;

-- name: outbox_content
-- Served by the primary key.
select content_type, headers, case when $2 then body end from millpond.outbox where seq = $1;

-- name: dead_letter_content
-- Served by the primary key.
select content_type, headers, case when $2 then body end from millpond.dead_letter where id = $1;

-- name: log_content
-- Served by the primary key.
select content_type, headers, case when $3 then body end from millpond.log where partition = $1 and log_offset = $2;
