-- name: dead_letter_list
-- From a place on, newest first. Served by millpond_dead_letter_died, which is its order.
select id, died_at, message_id, queue_id, class, reason, detail, sent_at, attempt, attempts_max, kind, key, error_class,
       fingerprint, worker, redriven_as, retry_of, length(body), content_type,
       case when :headers then headers end, case when :bodies then body end
from millpond_dead_letter
where died_at <= :at and (died_at < :at or id < :before) and died_at >= :from
order by died_at desc, id desc;

-- name: dead_letter_list_of_queue
-- The same of one queue. Served by millpond_dead_letter_queue, which is its order.
select id, died_at, message_id, queue_id, class, reason, detail, sent_at, attempt, attempts_max, kind, key, error_class,
       fingerprint, worker, redriven_as, retry_of, length(body), content_type,
       case when :headers then headers end, case when :bodies then body end
from millpond_dead_letter
where queue_id = :queue and died_at <= :at and (died_at < :at or id < :before) and died_at >= :from
order by died_at desc, id desc;

-- name: dead_letter_by_message
-- Served by the unique (message_id, subscription_id).
select id, died_at, message_id, queue_id, class, reason, detail, sent_at, attempt, attempts_max, kind, key, error_class,
       fingerprint, worker, redriven_as, retry_of, length(body), content_type, headers, case when ?2 then body end
from millpond_dead_letter where message_id = ?1;

-- name: outbox_list
-- From a place on, the next due first. Served by millpond_outbox_ready, which is its order.
select seq, ready_at, message_id, queue_id, reason, created_at, sent_at, attempt, last_error, kind, key, content_type,
       case when :headers then headers end, case when :bodies then body end
from millpond_outbox
where ready_at >= :at and (ready_at > :at or seq > :after) and ready_at <= :to
order by ready_at, seq;

-- name: outbox_list_of_queue
-- The same of one queue. Served by millpond_outbox_state; rows that are due at one instant are sorted.
select seq, ready_at, message_id, queue_id, reason, created_at, sent_at, attempt, last_error, kind, key, content_type,
       case when :headers then headers end, case when :bodies then body end
from millpond_outbox
where queue_id = :queue and ready_at >= :at and (ready_at > :at or seq > :after) and ready_at <= :to
order by ready_at, seq;

-- name: outbox_by_message
-- Served by the unique (message_id, subscription_id).
select seq, ready_at, message_id, queue_id, reason, created_at, sent_at, attempt, last_error, kind, key, content_type,
       headers, case when ?2 then body end
from millpond_outbox where message_id = ?1;

-- name: outbox_sums
-- Walks millpond_outbox_state, which has all it needs.
select queue_id, count(*), sum(ready_at <= :now), min(ready_at), min(case when ready_at > :now then ready_at end),
       max(attempt)
from millpond_outbox indexed by millpond_outbox_state
group by queue_id;
