-- name: dead_letter_list
-- From a place on, newest first. Served by millpond_dead_letter_died, which is its order.
select id, died_at, message_id, queue_id, reason, detail, sent_at, attempt, attempts_max, kind, key, error_class,
       fingerprint, worker, redriven_as, retry_of, length(body), content_type,
       case when :headers then headers end, case when :bodies then body end
from millpond_dead_letter
where died_at <= :at and (died_at < :at or id < :before) and died_at >= :from
order by died_at desc, id desc;

-- name: dead_letter_list_of_queue
-- The same of one queue. Served by millpond_dead_letter_queue, which is its order.
select id, died_at, message_id, queue_id, reason, detail, sent_at, attempt, attempts_max, kind, key, error_class,
       fingerprint, worker, redriven_as, retry_of, length(body), content_type,
       case when :headers then headers end, case when :bodies then body end
from millpond_dead_letter
where queue_id = :queue and died_at <= :at and (died_at < :at or id < :before) and died_at >= :from
order by died_at desc, id desc;

-- name: dead_letter_by_message
-- Served by the unique (message_id, subscription_id).
select id, died_at, message_id, queue_id, reason, detail, sent_at, attempt, attempts_max, kind, key, error_class,
       fingerprint, worker, redriven_as, retry_of, length(body), content_type, headers, case when ?2 then body end
from millpond_dead_letter where message_id = ?1;
