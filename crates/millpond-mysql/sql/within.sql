-- What a send in a user's own transaction runs, beside `dedup_hold`, `outbox_put` and `stat_sent`: see within.rs of core. A
-- question answers `number` and `word`.

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

-- name: within_holder
-- What was committed last, whatever the transaction's snapshot is. Served by the primary key.
select cast(checksum as signed) as number, lower(hex(message_id)) as word from millpond_dedup
where queue_id = $1 and dedup_key = $2 for update;
