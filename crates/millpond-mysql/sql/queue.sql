-- name: queue_by_name
-- Served by the unique name.
select id, name, settings, delivery from millpond_queue where name = $1;

-- name: queue_by_id
-- Served by the primary key.
select id, name, settings, delivery from millpond_queue where id = $1;

-- name: queue_list
-- Walks the queues, by name.
select id, name, settings, delivery from millpond_queue order by name;

-- name: setting_of_queue
-- What was changed at run time. Served by the primary key.
select queue_id, setting, value from millpond_setting_change where queue_id = $1;

-- name: setting_of_all
-- Walks the changes: a handful for each queue.
select queue_id, setting, value from millpond_setting_change;

-- name: queue_add
-- Another node may add it at the same moment: then nothing is added. What is there is served by the unique name.
insert ignore into millpond_queue (name, delivery, settings, history, declared_at) values ($1, $2, $3, $4, $now);

-- name: subscription_add
-- Served by the unique names.
insert ignore into millpond_subscription (queue_id, name) select id, '' from millpond_queue where name = $1;

-- name: queue_set
-- Served by the primary key.
update millpond_queue set settings = $2, history = $3 where id = $1;

-- name: queue_lock
-- Whoever changes the settings of a queue reads them behind this. Served by the unique name.
select id from millpond_queue where name = $1 for update;

-- name: limit_add
-- The queue has a limit: its bucket is full. What is there stays as it is.
-- What is there is served by the primary key.
insert ignore into millpond_queue_limit (queue_id, full_at) values ($1, 0);

-- name: limit_drop
-- Served by the primary key.
delete from millpond_queue_limit where queue_id = $1;

-- name: limit_lock
-- The one claim lock of a queue that has a limit over all nodes (R5), and when its bucket is full. It comes before those
-- of its partitions. A statement of its own: what is read after it is read after the lock (R1). Served by the primary key.
select full_at from millpond_queue_limit where queue_id = $1 for update;

-- name: limit_charge
-- Served by the primary key.
update millpond_queue_limit set full_at = $2 where queue_id = $1;

-- name: limit_list
-- Walks the queues that have limits.
select queue_id, full_at from millpond_queue_limit;

-- name: partition_place
-- Served by the primary keys.
select p.queue_id, q.name from millpond_log_partition p join millpond_queue q on q.id = p.queue_id where p.id = $1;

-- name: clock
-- Reads no table.
select $now;

-- name: subscription_of
-- Served by the unique (queue_id, name).
select id from millpond_subscription where queue_id = $1 and name = '';
