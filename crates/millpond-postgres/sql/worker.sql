-- name: worker_end
-- Served by the primary key.
update millpond.worker
set lease_until = least(lease_until, millpond.time_of($2)), seen_at = millpond.time_of($2), busy = 0, stopped = true
where id = $1;

-- name: worker_lease_until
-- Served by the primary key.
select lease_until from millpond.worker where id = $1;

-- name: worker_lock
-- A takeover is per worker: two of them count what it had in hand one after the other. Served by the primary key.
select 1 from millpond.worker where id = $1 for update;
