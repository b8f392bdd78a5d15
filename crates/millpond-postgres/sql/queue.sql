-- name: queue_by_name
-- What was changed at run time comes along. Served by the unique name, and the primary key of the changes.
select q.id, q.name, q.settings, q.delivery,
       (select array_agg(c.setting) from millpond.setting_change c where c.queue_id = q.id),
       (select array_agg(c.value) from millpond.setting_change c where c.queue_id = q.id)
from millpond.queue q where q.name = $1;

-- name: queue_by_id
-- Served by the primary key.
select q.id, q.name, q.settings, q.delivery,
       (select array_agg(c.setting) from millpond.setting_change c where c.queue_id = q.id),
       (select array_agg(c.value) from millpond.setting_change c where c.queue_id = q.id)
from millpond.queue q where q.id = $1;

-- name: queue_list
-- Walks the queues, by name.
select q.id, q.name, q.settings, q.delivery,
       (select array_agg(c.setting) from millpond.setting_change c where c.queue_id = q.id),
       (select array_agg(c.value) from millpond.setting_change c where c.queue_id = q.id)
from millpond.queue q order by q.name;

-- name: queue_add
-- Another node may add it at the same moment: then nothing is answered. What is there is served by the unique name.
with added as (
    insert into millpond.queue (name, delivery, settings, history, declared_at)
    values ($1, $2, $3, $4, millpond.time_of($5))
    on conflict do nothing
    returning id
), subscribed as (
    insert into millpond.subscription (queue_id, name) select id, '' from added
)
select id from added;

-- name: queue_set
-- Served by the primary key.
update millpond.queue set settings = $2, history = $3 where id = $1;

-- name: queue_lock
-- Whoever changes the settings of a queue reads them behind this. Served by the unique name.
select q.id from millpond.queue q where q.name = $1 for update;

-- name: limit_add
-- The queue has a limit: its bucket is full. What is there stays as it is.
-- What is there is served by the primary key.
insert into millpond.queue_limit (queue_id, full_at) values ($1, 0) on conflict (queue_id) do nothing;

-- name: limit_drop
-- Served by the primary key.
delete from millpond.queue_limit where queue_id = $1;

-- name: limit_lock
-- The one claim lock of a queue that has a limit over all nodes (R5). It comes before those of its partitions. A
-- statement of its own: what is read after it is read after the lock (R1).
-- Reads no table.
select pg_advisory_xact_lock(hashtext('millpond.limit'), $1)::text;

-- name: limit_charge
-- Served by the primary key.
update millpond.queue_limit set full_at = $2 where queue_id = $1;

-- name: limit_list
-- Walks the queues that have limits.
select queue_id, full_at from millpond.queue_limit;

-- name: partition_place
-- Served by the primary keys.
select p.queue_id, q.name from millpond.log_partition p join millpond.queue q on q.id = p.queue_id where p.id = $1;

-- name: clock
-- Reads no table.
select millpond.time_of(null);

-- name: subscription_of
-- Served by the unique (queue_id, name).
select id from millpond.subscription where queue_id = $1 and name = '';
