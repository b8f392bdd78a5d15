-- name: outbox_put
-- A send that is repeated with the same id, because its answer was lost, is one message.
-- What is there is served by the unique (message_id, subscription_id).
insert into millpond_outbox (message_id, subscription_id, queue_id, class, reason, ready_at, created_at, sent_at,
                             attempt, releases, suspect, attempts_max, retry_until, checksum, kind, key,
                             content_type, headers, body)
values (?1, 0, ?2, ?3, ?4, ?5, ?6, ?6, 0, 0, 0, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
on conflict do nothing;

-- name: outbox_put_back
-- A message returns from the log; the row of the log stays, as the log is never changed. Of a message that was
-- sent twice under one id, because its answer was lost, one copy is enough.
-- The row of the log is served by its primary key.
insert into millpond_outbox (message_id, subscription_id, queue_id, class, reason, ready_at, created_at, sent_at,
                             attempt, releases, suspect, attempts_max, retry_until, checksum, kind, key,
                             content_type, headers, last_error, body)
select message_id, ?3, ?4, ?5, ?6, ?7, ?8, sent_at, ?9, ?10, ?11, attempts_max, retry_until, checksum, kind, key,
       content_type, headers, ?12, body
from millpond_log where partition = ?1 and log_offset = ?2
on conflict do nothing;

-- name: outbox_due
-- Served by millpond_outbox_ready.
select seq, queue_id, class, reason, suspect, subscription_id from millpond_outbox
where ready_at <= ?1
order by ready_at, seq
limit ?2;

-- name: outbox_next
-- Served by millpond_outbox_ready.
select ready_at from millpond_outbox order by ready_at limit 1;

-- name: outbox_delete
-- Served by the primary key.
delete from millpond_outbox where seq = ?1;

-- name: outbox_put_redriven
-- A new life: another id, no attempts, no deadline. The relay appends it behind what was sent before.
-- The dead letter is served by its primary key.
insert into millpond_outbox (message_id, subscription_id, queue_id, class, reason, ready_at, created_at, sent_at,
                             attempt, releases, suspect, attempts_max, retry_until, checksum, kind, key,
                             content_type, headers, body, retry_of)
select ?2, 0, ?6, class, ?3, ?4, ?5, ?5, 0, 0, 0, coalesce(?7, attempts_max), null, checksum, kind, key, content_type,
       headers, body, message_id
from millpond_dead_letter where id = ?1;
