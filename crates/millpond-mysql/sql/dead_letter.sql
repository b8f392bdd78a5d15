-- name: dead_letter_redriven
-- Marks it, once: the dead letter stays and names the message that was made of it. Served by dead_letter_message.
update millpond_dead_letter set redriven_as = $2, redriven_at = $3 where message_id = $1 and redriven_as is null;

-- name: dead_letter_facts
-- Served by dead_letter_message.
select id, queue_id, kind from millpond_dead_letter where message_id = $1 and redriven_as = $2 limit 1;

-- name: dead_letter_look
-- Served by dead_letter_message.
select id, redriven_as from millpond_dead_letter where message_id = $1 order by id desc limit 1;

-- name: dead_letter_remove
-- Served by dead_letter_message.
delete from millpond_dead_letter where message_id = $1;

-- name: dead_letter_from_outbox
-- A message that waits in the outbox dies there. Served by the primary key of the outbox.
insert into millpond_dead_letter (message_id, subscription_id, queue_id, class, reason, detail, died_at, sent_at,
                                  attempt, releases, attempts_max, checksum, kind, `key`, content_type, headers, body,
                                  fingerprint, retry_of, hook)
select o.message_id, s.id, o.queue_id, o.class, $2, $3, $4, o.sent_at, o.attempt, o.releases, o.attempts_max, o.checksum,
       o.kind, o.`key`, o.content_type, o.headers, o.body, $5, o.retry_of,
       coalesce((select case q.hooked when 0 then 'none' else 'pending' end from millpond_queue q where q.id = o.queue_id), 'none')
from millpond_outbox o
join millpond_subscription s on s.queue_id = o.queue_id and s.name = ''
where o.seq = $1
on duplicate key update message_id = values(message_id);

-- name: outbox_take_out
-- Served by the primary key.
delete from millpond_outbox where seq = $1;

-- name: dead_letter_from_log
-- A message that is ready dies there. The row of the log is served by its primary key; what a redrive wrote of the
-- message by event_message.
insert into millpond_dead_letter (message_id, subscription_id, queue_id, class, reason, detail, died_at, sent_at,
                                  attempt, releases, attempts_max, checksum, kind, `key`, content_type, headers, body,
                                  fingerprint, retry_of, hook)
select l.message_id, $3, p.queue_id, p.class, $4, $5, $6, coalesce(l.sent_at, l.published_at), coalesce(l.attempt, 0),
       coalesce(l.releases, 0), l.attempts_max, l.checksum, l.kind, l.`key`, l.content_type, l.headers, l.body, $7,
       (select e.retry_of from millpond_event e where e.message_id = l.message_id and e.retry_of is not null limit 1),
       coalesce((select case q.hooked when 0 then 'none' else 'pending' end from millpond_queue q where q.id = p.queue_id), 'none')
from millpond_log l
join millpond_log_partition p on p.id = l.`partition`
where l.`partition` = $1 and l.log_offset = $2
on duplicate key update message_id = values(message_id);

-- name: outbox_put_redriven
-- A new life: another id, no attempts, no deadline. The relay appends it behind what was sent before.
-- The dead letter is served by its primary key.
insert into millpond_outbox (message_id, queue_id, class, lane, reason, ready_at, created_at, sent_at, attempt, releases,
                             suspect, attempts_max, checksum, kind, `key`, content_type, headers, body, retry_of)
select $2, $6, class, 0, $3, $4, $5, $5, 0, 0, 0, coalesce($7, attempts_max), checksum, kind, `key`, content_type, headers,
       body, message_id
from millpond_dead_letter where id = $1;

-- name: hook_expect
-- From now on the dead letters of a queue wait for a hook. Served by the primary key.
update millpond_queue set hooked = 1 where id = $1 and hooked = 0;

-- name: hook_due
-- Dead letters whose hook is to be called, and whether their message was acknowledged after all.
-- Served by dead_letter_hook; the inbox by its primary key.
select d.id, d.message_id, d.subscription_id, d.reason, d.detail, d.error_class, d.sent_at, d.died_at, d.attempt, d.kind,
       d.`key`, d.content_type, d.headers, d.hook_tries,
       exists (select 1 from millpond_inbox i
               where i.subscription_id = d.subscription_id and i.message_id = d.message_id), d.body
from millpond_dead_letter d
where d.hook = 'pending' and d.queue_id = $1 and d.hook_until <= $2
order by d.hook_until limit $3
for update skip locked;

-- name: hook_take
-- Served by the primary key.
update millpond_dead_letter set hook_tries = hook_tries + 1, hook_until = $2 where id in ($1);

-- name: hook_finish
-- Served by the primary key.
update millpond_dead_letter set hook = $2 where id = $1 and hook = 'pending';
