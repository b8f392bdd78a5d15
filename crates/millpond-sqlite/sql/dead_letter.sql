-- name: dead_letter_put
-- Of a message that was sent twice under one id one copy is enough. The row of the log is served by its primary key,
-- the dead letter that it is a new life of by millpond_dead_letter_redriven, the queue by its primary key.
insert into millpond_dead_letter (message_id, subscription_id, queue_id, class, reason, detail, died_at, sent_at,
                                  attempt, releases, attempts_max, error_class, fingerprint, worker, retry_of,
                                  checksum, kind, key, content_type, headers, body, hook)
select l.message_id, ?3, ?4, ?5, ?6, ?7, ?8, l.sent_at, ?9, l.releases, l.attempts_max, ?10, ?11, ?12,
       (select r.message_id from millpond_dead_letter r where r.redriven_as = l.message_id),
       l.checksum, l.kind, l.key, l.content_type, l.headers, l.body,
       coalesce((select case q.hooked when 0 then 'none' else 'pending' end from millpond_queue q where q.id = ?4), 'none')
from millpond_log l where l.partition = ?1 and l.log_offset = ?2
on conflict do nothing;

-- name: dead_letter_redriven
-- Marks it, once: the dead letter stays and names the message that was made of it.
-- Served by the unique (message_id, subscription_id).
update millpond_dead_letter set redriven_as = ?2, redriven_at = ?3 where message_id = ?1 and redriven_as is null
returning id, queue_id, kind;

-- name: hook_expect
-- From now on the dead letters of a queue wait for a hook. Served by the primary key.
update millpond_queue set hooked = 1 where id = ?1 and hooked = 0;

-- name: hook_due
-- Dead letters whose hook is to be called, and whether their message was acknowledged after all.
-- Served by millpond_dead_letter_hook; the inbox by its primary key.
select d.id, d.message_id, d.subscription_id, d.reason, d.detail, d.error_class, d.sent_at, d.died_at, d.attempt, d.kind,
       d.key, d.content_type, d.headers, d.hook_tries,
       exists (select 1 from millpond_inbox i
               where i.subscription_id = d.subscription_id and i.message_id = d.message_id), d.body
from millpond_dead_letter d
where d.hook = 'pending' and d.queue_id = ?1 and d.hook_until <= ?2
order by d.hook_until limit ?3;

-- name: hook_take
-- Served by the primary key.
update millpond_dead_letter set hook_tries = hook_tries + 1, hook_until = ?2 where id = ?1;

-- name: hook_finish
-- Served by the primary key.
update millpond_dead_letter set hook = ?2 where id = ?1 and hook = 'pending';
