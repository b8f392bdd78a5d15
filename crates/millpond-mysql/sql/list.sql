-- name: dead_letter_list
-- From a place on, newest first, of one queue or of all. Served by dead_letter_queue or dead_letter_died.
select id, died_at, message_id, queue_id, class, reason, detail, sent_at, attempt, attempts_max, kind, `key`, error_class,
       fingerprint, worker, redriven_as, retry_of, octet_length(body), content_type,
       case when $4 then headers end, case when $5 then body end
from millpond_dead_letter
where died_at <= $1 and (died_at < $1 or id < $2) and died_at >= $3
order by died_at desc, id desc
limit $6;

-- name: dead_letter_list_of_queue
-- The same of one queue. Served by dead_letter_queue.
select id, died_at, message_id, queue_id, class, reason, detail, sent_at, attempt, attempts_max, kind, `key`, error_class,
       fingerprint, worker, redriven_as, retry_of, octet_length(body), content_type,
       case when $4 then headers end, case when $5 then body end
from millpond_dead_letter
where died_at <= $1 and (died_at < $1 or id < $2) and died_at >= $3 and queue_id = $7
order by died_at desc, id desc
limit $6;

-- name: dead_letter_by_message
-- Served by the unique (message_id, subscription_id).
select id, died_at, message_id, queue_id, class, reason, detail, sent_at, attempt, attempts_max, kind, `key`, error_class,
       fingerprint, worker, redriven_as, retry_of, octet_length(body), content_type, headers, case when $2 then body end
from millpond_dead_letter where message_id = $1;

-- name: outbox_list
-- From a place on, the next due first. Served by outbox_ready, which is its order.
select seq, ready_at, message_id, queue_id, reason, created_at, sent_at, attempt, last_error, kind, `key`, content_type,
       case when $4 then headers end, case when $5 then body end
from millpond_outbox
where ready_at >= $1 and (ready_at > $1 or seq > $2) and ready_at <= $3
order by ready_at, seq
limit $6;

-- name: outbox_list_of_queue
-- The same of one queue. Served by outbox_state, which is its order.
select seq, ready_at, message_id, queue_id, reason, created_at, sent_at, attempt, last_error, kind, `key`, content_type,
       case when $4 then headers end, case when $5 then body end
from millpond_outbox
where ready_at >= $1 and (ready_at > $1 or seq > $2) and ready_at <= $3 and queue_id = $7
order by ready_at, seq
limit $6;

-- name: outbox_by_message
-- Served by the unique (message_id, subscription_id).
select seq, ready_at, message_id, queue_id, reason, created_at, sent_at, attempt, last_error, kind, `key`, content_type,
       headers, case when $2 then body end
from millpond_outbox where message_id = $1;

-- name: outbox_sums
-- Walks outbox_state, which has all it needs.
select queue_id, count(*), sum(ready_at <= $1), min(ready_at), min(if(ready_at > $1, ready_at, null)),
       max(attempt)
from millpond_outbox
group by queue_id;
