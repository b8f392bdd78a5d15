-- What a send in a user's own transaction runs, beside `outbox_put` and `stat_add`: see within.rs of core. A question answers
-- `number` and `word`.

-- name: within_find_queue
-- The queue, and what was changed at run time. Served by the unique name, and the primary key of the changes.
select id as number, settings as word from millpond_queue where name = ?1
union all
select null, (select json_group_object(setting, json(value)) filter (where json_valid(value))
              from millpond_setting_change where queue_id = q.id)
from millpond_queue q where q.name = ?1;

-- name: within_later_release
-- Served by the primary key.
select number, null as word from millpond_migration where number > ?1 order by number desc limit 1;

-- name: within_hold
-- Unless it is held. What is there is served by the primary key.
insert into millpond_dedup (queue_id, dedup_key, message_id, checksum, expires_at) values (?1, ?2, ?3, ?4, ?5)
on conflict (queue_id, dedup_key) do update
set message_id = excluded.message_id, checksum = excluded.checksum, expires_at = excluded.expires_at
where expires_at <= ?6;

-- name: within_holder
-- Served by the primary key.
select checksum as number, lower(hex(message_id)) as word from millpond_dedup where queue_id = ?1 and dedup_key = ?2;

-- name: within_arrived
-- A relay of any node may have moved it already. Served by the unique (message_id, subscription_id), and
-- millpond_log_message.
select 1 from millpond_outbox where message_id = ?1 and subscription_id = 0
union all
select 1 from millpond_log where message_id = ?1 and via_outbox = 1;
