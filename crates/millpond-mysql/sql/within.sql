-- What a send in a user's own transaction runs, beside `stat_sent`: see within.rs of core. A question answers `number` and
-- `word`. The session is the user's, so none of this sets a variable there, as `dedup_hold` and `outbox_put` do.

-- name: within_find_queue
-- The queue, and what was changed at run time. Served by the unique name, and the primary key of the changes.
select cast(id as signed) as number, settings as word from millpond_queue where name = $1
union all
select null, concat(c.setting, '=', c.value)
from millpond_setting_change c join millpond_queue q on q.id = c.queue_id where q.name = $1;

-- name: within_later_release
-- Served by the primary key.
select cast(number as signed) as number, cast(null as char) as word from millpond_migration
where number > $1 order by number desc limit 1;

-- name: within_hold
-- The key, unless it is held. The end of the window is written last: what is compared before is the stored one. What is
-- there is served by the primary key.
insert into millpond_dedup (queue_id, dedup_key, message_id, checksum, expires_at)
values ($1, $2, $3, $4, $now + $5)
on duplicate key update message_id = if(expires_at <= $now, values(message_id), message_id),
                        checksum = if(expires_at <= $now, values(checksum), checksum),
                        expires_at = if(expires_at <= $now, values(expires_at), expires_at);

-- name: within_put
-- As `outbox_put`; a due time is an instant or a wait. What is there is served by outbox_message.
insert into millpond_outbox (message_id, queue_id, class, lane, reason, ready_at, created_at, sent_at, attempt, releases,
                             suspect, checksum, body, kind, `key`, content_type, headers, attempts_max, retry_until)
values {($1, $2, $3, 0, $4, coalesce($5, $now + $6, $now), $now, $now, 0, 0,
         0, $7, $8, $9, $10, $11, $12, $13, coalesce($14, $now + $15))}
on duplicate key update message_id = values(message_id);

-- name: within_holder
-- What was committed last, whatever the transaction's snapshot is. Served by the primary key.
select cast(checksum as signed) as number, lower(hex(message_id)) as word from millpond_dedup
where queue_id = $1 and dedup_key = $2 for update;

-- name: within_arrived
-- A relay of any node may have moved them already. Served by outbox_message, and log_message.
select message_id from millpond_outbox where message_id in ($1) and subscription_id = 0
union all
select message_id from millpond_log_returned where message_id in ($1);
