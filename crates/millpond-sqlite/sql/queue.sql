-- name: queue_by_name
-- What was changed at run time comes along, as far as it can be read. Served by the unique name, and the primary key of the changes.
select id, name, settings, delivery,
       (select json_group_object(setting, json(value)) filter (where json_valid(value))
        from millpond_setting_change where queue_id = millpond_queue.id)
from millpond_queue where name = :name;

-- name: queue_by_id
-- Served by the primary key.
select id, name, settings, delivery,
       (select json_group_object(setting, json(value)) filter (where json_valid(value))
        from millpond_setting_change where queue_id = millpond_queue.id)
from millpond_queue where id = :id;

-- name: queue_list
-- Walks the unique name, which is its order.
select id, name, settings, delivery,
       (select json_group_object(setting, json(value)) filter (where json_valid(value))
        from millpond_setting_change where queue_id = millpond_queue.id)
from millpond_queue order by name;

-- name: queue_add
insert into millpond_queue (name, delivery, settings, declared_at)
values (:name, :delivery, :settings, :now) returning id;

-- name: queue_set
-- Served by the primary key.
update millpond_queue set settings = :settings where id = :id;

-- name: limit_add
-- The queue has a limit: its bucket is full. What is there stays as it is.
-- What is there is served by the primary key.
insert into millpond_queue_limit (queue_id, full_at) values (:queue, 0) on conflict (queue_id) do nothing;

-- name: limit_drop
-- Served by the primary key.
delete from millpond_queue_limit where queue_id = :queue;

-- name: limit_get
-- Served by the primary key.
select full_at from millpond_queue_limit where queue_id = :queue;

-- name: limit_charge
-- Served by the primary key.
update millpond_queue_limit set full_at = :full_at where queue_id = :queue;

-- name: limit_list
-- Walks the queues that have limits.
select queue_id, full_at from millpond_queue_limit;

-- name: subscription_add
insert into millpond_subscription (queue_id, name) values (:queue, '') returning id;

-- name: subscription_of
-- Served by the unique (queue_id, name).
select id from millpond_subscription where queue_id = :queue and name = '';

-- name: partition_list
-- All parts of a queue; a handful of rows. Served by millpond_log_partition_part.
select id, class, lane from millpond_log_partition where queue_id = :queue;

-- name: partition_add
insert into millpond_log_partition (queue_id, class, lane, subscription_id)
values (:queue, :class, :lane, case when :lane = 0 then null else :subscription end) returning id;

-- name: partition_queue
-- Served by the primary key.
select queue_id, class, lane from millpond_log_partition where id = :partition;

-- name: migration_last
-- Served by the primary key of millpond_migration.
select coalesce(max(number), 0) from millpond_migration;
