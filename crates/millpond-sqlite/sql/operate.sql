-- name: audit_last
-- Served by the primary key, its last entry.
select number, hash from millpond_audit order by number desc limit 1;

-- name: audit_add
insert into millpond_audit (number, at, actor, verb, object, count, reason, hash)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8);

-- name: audit_page
-- Newest first, and one more than is shown: the chain begins there. Served by the primary key.
select number, at, actor, verb, object, count, reason, hash from millpond_audit
where ?1 is null or number < ?1
order by number desc limit ?2;

-- name: declarations_raise
-- The only row.
-- Served by the primary key.
update millpond_declarations set number = number + 1 where only_one = 1;

-- name: declarations_number
-- Served by the primary key.
select number from millpond_declarations where only_one = 1;

-- name: pause_put
-- A pause that lasts keeps its beginning; one that is over begins anew. What is there is served by the primary key.
insert into millpond_pause (queue_id, reason, actor, paused_at, until) values (?1, ?2, ?3, ?4, ?5)
on conflict (queue_id) do update
set reason = excluded.reason, actor = excluded.actor, until = excluded.until,
    paused_at = case when until <= excluded.paused_at then excluded.paused_at else paused_at end;

-- name: pause_end
-- Served by the primary key. A pause that is over by itself is no pause.
delete from millpond_pause where queue_id = ?1 returning until is null or until > ?2;

-- name: lease_gate
-- Asked with every lease: whether a pause holds the queue, and whether it has a limit over all nodes. Served by the
-- primary keys.
select exists (select 1 from millpond_pause where queue_id in (0, ?1) and (until is null or until > ?2)),
       exists (select 1 from millpond_queue_limit where queue_id = ?1);

-- name: pause_list
-- Walks the pauses: at most one for each queue.
select p.queue_id, q.name, p.reason, p.actor, p.paused_at, p.until
from millpond_pause p
left join millpond_queue q on q.id = p.queue_id
where until is null or until > ?1
order by p.queue_id;

-- name: setting_put
-- What is there is served by the primary key.
insert into millpond_setting_change (queue_id, setting, value, actor, changed_at) values (?1, ?2, ?3, ?4, ?5)
on conflict (queue_id, setting) do update
set value = excluded.value, actor = excluded.actor, changed_at = excluded.changed_at;

-- name: setting_unset
-- Served by the primary key.
delete from millpond_setting_change where queue_id = ?1 and setting = ?2;

-- name: setting_list
-- Walks the changes: a handful for each queue.
select queue_id, setting, value, actor, changed_at from millpond_setting_change order by queue_id, setting;

-- name: cancel_next
-- The marks above an offset, the lowest first. Asked with every lease. Served by the primary key.
select log_offset from millpond_cancel
where subscription_id = ?1 and partition = ?2 and log_offset > ?3
order by log_offset limit ?4;

-- name: cancel_add
-- What is there is served by the primary key.
insert into millpond_cancel (subscription_id, partition, log_offset, actor, reason, asked_at)
values (?1, ?2, ?3, ?4, ?5, ?6)
on conflict do nothing;

-- name: cancel_of_message
-- Served by the primary key.
select actor, reason from millpond_cancel where subscription_id = ?1 and partition = ?2 and log_offset = ?3;

-- name: cancel_delete_range
-- Served by the primary key.
delete from millpond_cancel where subscription_id = ?1 and partition = ?2 and log_offset between ?3 and ?4;

-- name: cancel_of_worker
-- What a worker should stop. Its claims are served by millpond_claim_worker, the marks by their primary key.
select c.token, x.log_offset
from millpond_claim c indexed by millpond_claim_worker
cross join millpond_cancel x on x.subscription_id = c.subscription_id and x.partition = c.partition
                                and x.log_offset between c.from_offset and c.to_offset
where c.worker = ?1 and c.token is not null and c.expires_at is null;

-- name: dead_letter_from_outbox
-- A message that waits in the outbox dies there. The row of the outbox and the queue are served by their primary keys.
insert into millpond_dead_letter (message_id, subscription_id, queue_id, class, reason, detail, died_at, sent_at,
                                  attempt, releases, attempts_max, checksum, kind, key, content_type, headers, body,
                                  fingerprint, retry_of, hook)
select message_id, ?2, queue_id, class, ?3, ?4, ?5, sent_at, attempt, releases, attempts_max, checksum, kind, key,
       content_type, headers, body, ?6, retry_of,
       coalesce((select case q.hooked when 0 then 'none' else 'pending' end from millpond_queue q where q.id = queue_id), 'none')
from millpond_outbox where seq = ?1
on conflict do nothing;

-- name: dead_letter_from_log
-- A message that is ready dies there. The row of the log and the queue are served by their primary keys; what a redrive wrote of the
-- message by millpond_event_message.
insert into millpond_dead_letter (message_id, subscription_id, queue_id, class, reason, detail, died_at, sent_at,
                                  attempt, releases, attempts_max, checksum, kind, key, content_type, headers, body,
                                  fingerprint, retry_of, hook)
select l.message_id, ?3, ?4, ?5, ?6, ?7, ?8, l.sent_at, l.attempt, l.releases, l.attempts_max, l.checksum, l.kind,
       l.key, l.content_type, l.headers, l.body, ?9,
       (select e.retry_of from millpond_event e where e.message_id = l.message_id and e.retry_of is not null limit 1),
       coalesce((select case q.hooked when 0 then 'none' else 'pending' end from millpond_queue q where q.id = ?4), 'none')
from millpond_log l where l.partition = ?1 and l.log_offset = ?2
on conflict do nothing;

-- name: outbox_find
-- Served by the unique (message_id, subscription_id).
select seq, queue_id, kind, attempt, releases, reason from millpond_outbox where message_id = ?1
order by subscription_id desc limit 1;

-- name: outbox_hasten
-- Served by the primary key.
update millpond_outbox set ready_at = min(ready_at, ?2) where seq = ?1;

-- name: outbox_of_queue
-- Served by millpond_outbox_state.
select seq from millpond_outbox where queue_id = ?1 limit ?2;

-- name: outbox_drop
-- Served by the primary key.
delete from millpond_outbox where seq = ?1 returning kind;

-- name: dead_letter_look
-- Served by the unique (message_id, subscription_id).
select id, queue_id, kind, redriven_as from millpond_dead_letter where message_id = ?1 order by id desc limit 1;

-- name: dead_letter_remove
-- Served by the unique (message_id, subscription_id).
delete from millpond_dead_letter where message_id = ?1;

-- name: event_add_redriven
insert into millpond_event (message_id, queue_id, kind, reason, attempt, releases, at, retry_of, name)
values (?1, ?2, ?3, ?4, 0, 0, ?5, ?6, ?7);

-- name: event_add_bulk
-- Many messages in one row; it has no id of one: the empty one stands for that.
insert into millpond_event (message_id, queue_id, kind, reason, attempt, releases, error, at, count, name)
values (x'', ?1, ?2, ?3, 0, 0, ?4, ?5, ?6, ?7);

-- name: log_kinds
-- How many messages of which work a range of the log has. Served by the primary key.
select kind, count(*) from millpond_log where partition = ?1 and log_offset between ?2 and ?3 group by kind;

-- name: cancel_kinds
-- The same of those that were cancelled. The marks are served by their primary key, the rows by theirs.
select l.kind, count(*)
from millpond_cancel x
join millpond_log l on l.partition = x.partition and l.log_offset = x.log_offset
where x.subscription_id = ?1 and x.partition = ?2 and x.log_offset between ?3 and ?4
group by l.kind;

-- name: claim_put_marker
-- The cursor moves without a lease (R7).
insert into millpond_claim (subscription_id, partition, to_offset, from_offset, token, worker, leased_at, done, runs)
values (?1, ?2, ?3, ?4, null, null, ?5, x'', x'');

-- name: worker_wish
-- One worker that lives, or all of them. Walks the workers, which are few.
update millpond_worker set wish = ?2
where (?1 is null or id = ?1) and stopped = 0 and lease_until > ?3;

-- name: worker_wished
-- Served by the primary key.
select wish from millpond_worker where id = ?1;
