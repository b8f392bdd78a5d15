-- name: dead_letter_put
-- Of a message that was sent twice under one id one copy is enough. The row of the log is served by its primary key,
-- the dead letter that it is a new life of by millpond_dead_letter_redriven.
insert into millpond_dead_letter (message_id, subscription_id, queue_id, class, reason, detail, died_at, sent_at,
                                  attempt, releases, attempts_max, error_class, fingerprint, worker, retry_of,
                                  checksum, kind, key, content_type, headers, body)
select l.message_id, ?3, ?4, ?5, ?6, ?7, ?8, l.sent_at, ?9, l.releases, l.attempts_max, ?10, ?11, ?12,
       (select r.message_id from millpond_dead_letter r where r.redriven_as = l.message_id),
       l.checksum, l.kind, l.key, l.content_type, l.headers, l.body
from millpond_log l where l.partition = ?1 and l.log_offset = ?2
on conflict do nothing;

-- name: dead_letter_redriven
-- Marks it, once: the dead letter stays and names the message that was made of it.
-- Served by the unique (message_id, subscription_id).
update millpond_dead_letter set redriven_as = ?2, redriven_at = ?3 where message_id = ?1 and redriven_as is null
returning id, queue_id, kind;
