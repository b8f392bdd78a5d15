-- name: audit_lock
-- One line is chained to the one before: two changes write theirs one after the other. The last lock of a transaction.
-- Served by the primary key.
select number from millpond_declarations where only_one = 2 for update;

-- name: audit_last
-- Served by the primary key, its last entry.
select number, hash from millpond_audit order by number desc limit 1;

-- name: audit_add
insert into millpond_audit (number, at, actor, verb, object, count, reason, hash) values ($1, $2, $3, $4, $5, $6, $7, $8);

-- name: audit_page
-- Newest first, and one more than is shown: the chain begins there. Served by the primary key.
select number, at, actor, verb, object, count, reason, hash from millpond_audit
where number < $1
order by number desc limit $2;

-- name: declarations_raise
-- The only row. Served by the primary key.
update millpond_declarations set number = number + 1 where only_one = 1;

-- name: pause_put
-- A pause that lasts keeps its beginning; one that is over begins anew. Its end is written last: what is compared before is
-- the stored one. What is there is served by the primary key.
insert into millpond_pause (queue_id, reason, actor, paused_at, until) values ($1, $2, $3, $4, $5)
on duplicate key update
    paused_at = if(until <= values(paused_at), values(paused_at), paused_at),
    reason = values(reason), actor = values(actor), until = values(until);

-- name: pause_end
-- Served by the primary key.
delete from millpond_pause where queue_id = $1;

-- name: pause_lasts
-- A pause that is over by itself is no pause. Served by the primary key.
select until is null or until > $2 from millpond_pause where queue_id = $1 for update;

-- name: pause_list
-- Walks the pauses: at most one for each queue.
select p.queue_id, q.name, p.reason, p.actor, p.paused_at, p.until
from millpond_pause p
left join millpond_queue q on q.id = p.queue_id
where p.until is null or p.until > $1
order by p.queue_id;

-- name: setting_put
-- What is there is served by the primary key.
insert into millpond_setting_change (queue_id, setting, value, actor, changed_at) values ($1, $2, $3, $4, $5)
on duplicate key update value = values(value), actor = values(actor), changed_at = values(changed_at);

-- name: setting_unset
-- Served by the primary key.
delete from millpond_setting_change where queue_id = $1 and setting = $2;

-- name: setting_list
-- Walks the changes: a handful for each queue.
select queue_id, setting, value, actor, changed_at from millpond_setting_change order by queue_id, setting;

-- name: cancel_add
-- What is there is served by the primary key.
insert into millpond_cancel (subscription_id, `partition`, log_offset, actor, reason, asked_at)
values ($1, $2, $3, $4, $5, $6)
on duplicate key update log_offset = values(log_offset);

-- name: cancel_of_message
-- Served by the primary key.
select actor, reason from millpond_cancel where subscription_id = $1 and `partition` = $2 and log_offset = $3;

-- name: claim_of_offset_lock
-- The claim that holds an offset, so that it is not settled meanwhile. Served by the primary key.
select 1 from millpond_claim where subscription_id = $1 and `partition` = $2 and to_offset >= $3
order by to_offset limit 1
for update;

-- name: log_identity
-- What a change must know of one message. Served by the primary key.
select l.message_id, coalesce(l.attempt, 0), coalesce(l.releases, 0), l.kind, p.queue_id
from millpond_log l
join millpond_log_partition p on p.id = l.`partition`
where l.`partition` = $1 and l.log_offset = $2;

-- name: outbox_find
-- Locked, so that no relay moves it meanwhile. Served by outbox_message.
select seq, queue_id, kind, attempt, releases, reason from millpond_outbox where message_id = $1
order by subscription_id desc limit 1
for update;

-- name: outbox_hasten
-- Served by the primary key.
update millpond_outbox set ready_at = least(ready_at, $2) where seq = $1;

-- name: outbox_drop
-- At most so many of a queue; what a relay moves at this moment is left. Served by outbox_state.
select seq, kind from millpond_outbox where queue_id = $1 limit $2 for update skip locked;

-- name: outbox_has
-- Whether something waits for a queue. Served by outbox_state.
select exists (select 1 from millpond_outbox where queue_id = $1);

-- name: event_add
-- run: how long the handler ran, in microseconds. name: of the work; null is the queue's own.
insert into millpond_event (message_id, queue_id, kind, reason, attempt, releases, worker, error, at, run, name, count, retry_of)
values ($1, $2, $3, $4, $5, $6, null, $7, $8, null, $9, $10, $11);

-- name: stat_add
insert into millpond_stat_delta (queue_id, kind, minute, sent, dead) values ($1, $2, $3 div 60000000, $4, $5);

-- name: log_kinds
-- How many messages of which work a range of the log has, without those that were cancelled there: they have their dead
-- letters. The range is served by the primary key of the log, the marks by theirs.
select l.kind, count(*)
from millpond_log l
where l.`partition` = $2 and l.log_offset between $3 and $4
      and not exists (select 1 from millpond_cancel x
                      where x.subscription_id = $1 and x.`partition` = l.`partition` and x.log_offset = l.log_offset)
group by l.kind;

-- name: partition_list
-- All parts of a queue; a handful of rows. Served by log_partition_part.
select p.id, s.id from millpond_log_partition p
join millpond_subscription s on s.queue_id = p.queue_id and s.name = ''
where p.queue_id = $1
order by 1;

-- name: worker_wish
-- One worker that lives, or all of them. Walks the workers, which are few.
update millpond_worker set wish = $2 where ($1 is null or id = $1) and not stopped and lease_until > $3;

-- name: history_add_purged
insert into millpond_history (queue_id, `partition`, from_offset, to_offset, leased_at, finished_at, runs)
values ($1, $2, $3, $4, $5, $5, $6);
