-- name: dead_letter_redriven
-- Marks it, once: the dead letter stays and names the message that was made of it.
-- Served by the unique (message_id, subscription_id).
update millpond.dead_letter set redriven_as = $2, redriven_at = $3 where message_id = $1 and redriven_as is null
returning id, queue_id, kind;

-- name: dead_letter_look
-- Served by the unique (message_id, subscription_id).
select id, redriven_as from millpond.dead_letter where message_id = $1 order by id desc limit 1;

-- name: dead_letter_remove
-- Served by the unique (message_id, subscription_id).
delete from millpond.dead_letter where message_id = $1;

-- name: dead_letter_from_outbox
-- A message that waits in the outbox dies there. Both are served by the primary key of the outbox.
with gone as (
    delete from millpond.outbox where seq = $1 returning *
)
insert into millpond.dead_letter (message_id, subscription_id, queue_id, class, reason, detail, died_at, sent_at,
                                  attempt, releases, attempts_max, checksum, kind, key, content_type, headers, body,
                                  fingerprint, retry_of, hook)
select message_id, (select s.id from millpond.subscription s where s.queue_id = gone.queue_id and s.name = ''), queue_id,
       class, $2, $3, $4, sent_at, attempt, releases, attempts_max, checksum, kind, key, content_type, headers, body, $5,
       retry_of, coalesce((select case when q.hooked then 'pending' else 'none' end from millpond.queue q where q.id = gone.queue_id), 'none')
from gone
on conflict do nothing;

-- name: dead_letter_from_log
-- A message that is ready dies there. The row of the log is served by its primary key; what a redrive wrote of the
-- message by event_message.
insert into millpond.dead_letter (message_id, subscription_id, queue_id, class, reason, detail, died_at, sent_at,
                                  attempt, releases, attempts_max, checksum, kind, key, content_type, headers, body,
                                  fingerprint, retry_of, hook)
select l.message_id, $3, p.queue_id, p.class, $4, $5, $6, coalesce(l.sent_at, l.published_at), coalesce(l.attempt, 0),
       coalesce(l.releases, 0), l.attempts_max, l.checksum, l.kind, l.key, l.content_type, l.headers, l.body, $7,
       (select e.retry_of from millpond.event e where e.message_id = l.message_id and e.retry_of is not null limit 1),
       coalesce((select case when q.hooked then 'pending' else 'none' end from millpond.queue q where q.id = p.queue_id), 'none')
from millpond.log l
join millpond.log_partition p on p.id = l.partition
where l.partition = $1 and l.log_offset = $2
on conflict do nothing;

-- name: outbox_put_redriven
-- A new life: another id, no attempts, no deadline. The relay appends it behind what was sent before.
-- The dead letter is served by its primary key.
insert into millpond.outbox (message_id, queue_id, class, lane, reason, ready_at, created_at, sent_at, attempt, releases,
                             suspect, attempts_max, checksum, kind, key, content_type, headers, body, retry_of)
select $2, $6, class, 0, $3, $4, $5, $5, 0, 0, 0, coalesce($7, attempts_max), checksum, kind, key, content_type, headers,
       body, message_id
from millpond.dead_letter where id = $1;

-- name: hook_expect
-- From now on the dead letters of a queue wait for a hook. Served by the primary key.
update millpond.queue set hooked = true where id = $1 and not hooked;

-- name: hook_take
-- Takes dead letters whose hook is to be called, for a while, and says whether their message was acknowledged after all.
-- Served by dead_letter_hook; the rows themselves and the inbox by their primary keys.
with due as (
    select d.id from millpond.dead_letter d
    where d.hook = 'pending' and d.queue_id = $1 and d.hook_until <= $2
    order by d.hook_until limit $4
    for update skip locked
)
update millpond.dead_letter d set hook_tries = d.hook_tries + 1, hook_until = $3
from due where d.id = due.id
returning d.id, d.message_id, d.subscription_id, d.reason, d.detail, d.error_class, d.sent_at, d.died_at, d.attempt, d.kind,
          d.key, d.content_type, d.headers, d.hook_tries,
          exists (select 1 from millpond.inbox i
                  where i.subscription_id = d.subscription_id and i.message_id = d.message_id), d.body;

-- name: hook_finish
-- Served by the primary key.
update millpond.dead_letter set hook = $2 where id = $1 and hook = 'pending';
