-- name: queue_by_name
-- Served by the unique name.
select id, name, settings, delivery from millpond.queue where name = $1;

-- name: queue_by_id
-- Served by the primary key.
select id, name, settings, delivery from millpond.queue where id = $1;

-- name: queue_list
-- Walks the queues, by name.
select id, name, settings, delivery from millpond.queue order by name;

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

-- name: partition_place
-- Served by the primary key.
select queue_id, class, lane from millpond.log_partition where id = $1;

-- name: clock
-- Reads no table.
select millpond.time_of(null);

-- name: subscription_of
-- Served by the unique (queue_id, name).
select id from millpond.subscription where queue_id = $1 and name = '';
