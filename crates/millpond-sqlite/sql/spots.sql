-- name: spot_parts
-- Every part of every queue; a handful of rows.
-- Walks the subscriptions; their parts are served by millpond_log_partition_part.
select p.id, p.queue_id, p.class, p.lane, p.first_offset, s.id
from millpond_log_partition p
join millpond_subscription s on s.queue_id = p.queue_id and s.name = '';

-- name: spot_live
-- What is under lease in a part. Served by the primary key.
select from_offset, to_offset, worker, leased_at, done, runs from millpond_claim
where subscription_id = ?1 and partition = ?2 and token is not null;

-- name: spot_cancelled
-- Cancelled messages that no lease has passed yet. Served by the primary key.
select log_offset from millpond_cancel where subscription_id = ?1 and partition = ?2 and log_offset > ?3;

-- name: spot_ended
-- The only finished claim that can have held an offset. Served by millpond_history_range.
select from_offset, to_offset, worker, leased_at, runs from millpond_history
where partition = ?1 and to_offset >= ?2
order by to_offset limit 1;

-- name: spot_left
-- Whether a message has a row that came after one of the log, or ended there without being done. Served by the unique
-- indexes of outbox and dead letters, by millpond_log_message and millpond_event_message; the one row by its primary key.
select exists (select 1 from millpond_outbox where message_id = ?1)
       or exists (select 1 from millpond_dead_letter where message_id = ?1)
       or exists (select 1 from millpond_log l
                  where l.message_id = ?1 and l.via_outbox = 1
                        and l.published_at >= (select o.published_at from millpond_log o
                                               where o.partition = ?2 and o.log_offset = ?3)
                        and (l.partition != ?2 or l.log_offset > ?3))
       or exists (select 1 from millpond_event e
                  where e.message_id = ?1
                        and (e.kind = 'DLQ'
                             or (e.kind in ('RETRY', 'RECOVER')
                                 and e.attempt + e.releases > (select o.attempt + o.releases from millpond_log o
                                                               where o.partition = ?2 and o.log_offset = ?3))));

-- name: outbox_spots
-- Served by millpond_outbox_sent, which is its order.
select message_id, queue_id, class, sent_at, attempt, releases, attempts_max, retry_until, kind, key, seq, reason, ready_at,
       last_error, case when reason in ('tx', 'delay') then retry_of end
from millpond_outbox
where queue_id = :of and sent_at <= :at and (sent_at < :at or message_id < :id) and sent_at >= :earliest
order by sent_at desc, message_id desc
limit :rows_max;

-- name: dead_letter_spots
-- Served by millpond_dead_letter_sent, which is its order.
select message_id, queue_id, class, sent_at, attempt, releases, attempts_max, null, kind, key, id, reason, detail,
       worker, retry_of
from millpond_dead_letter
where queue_id = :of and sent_at <= :at and (sent_at < :at or message_id < :id) and sent_at >= :earliest
order by sent_at desc, message_id desc
limit :rows_max;

-- name: log_sent_spots
-- What came through the outbox. Served by millpond_log_sent, which is its order; its part by the primary key.
select l.message_id, null, null, l.sent_at, l.attempt, l.releases, l.attempts_max, l.retry_until, l.kind, l.key,
       l.log_offset, l.published_at, l.via_outbox, l.reason, p.queue_id, p.class
from millpond_log l
join millpond_log_partition p on p.id = l.partition
where l.partition = :of and l.via_outbox = 1 and l.sent_at <= :at and (l.sent_at < :at or l.message_id < :id)
      and l.sent_at >= :earliest and l.log_offset >= :lowest
order by l.sent_at desc, l.message_id desc
limit :rows_max;

-- name: log_spots
-- A range of one part, from its end. Only what came through the outbox has a reason, which is behind the body.
-- Served by the primary key.
select message_id, null, null, sent_at, attempt, releases, attempts_max, retry_until, kind, key, log_offset, published_at,
       via_outbox, case when via_outbox = 1 then reason end
from millpond_log
where partition = ?1 and log_offset between ?2 and ?3
order by log_offset desc
limit ?4;

-- name: outbox_content
-- Served by the primary key.
select content_type, headers, case when ?2 then body end from millpond_outbox where seq = ?1;

-- name: dead_letter_content
-- Served by the primary key.
select content_type, headers, case when ?2 then body end from millpond_dead_letter where id = ?1;

-- name: log_content
-- Served by the primary key.
select content_type, headers, case when ?3 then body end from millpond_log where partition = ?1 and log_offset = ?2;
