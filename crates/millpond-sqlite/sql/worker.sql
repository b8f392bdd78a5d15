-- name: worker_renew
-- A renewal that was on its way when its worker ended does not bring it back.
-- What is there is served by the primary key.
insert into millpond_worker (id, host, queues, slots, busy, error, started_at, seen_at, lease_until, lease, facts)
values (:id, :host, :queues, :slots, :busy, :error, :now, :now, :now + :lease, :lease, :facts)
on conflict (id) do update
set queues = excluded.queues, slots = excluded.slots, busy = excluded.busy, error = excluded.error,
    seen_at = excluded.seen_at, lease_until = excluded.lease_until, lease = excluded.lease,
    facts = excluded.facts
where stopped = 0;

-- name: worker_end
-- Served by the primary key.
update millpond_worker set lease_until = min(lease_until, :now), seen_at = :now, busy = 0, stopped = 1
where id = :id;

-- name: worker_last_seen
-- Walks the workers, which are few.
select coalesce(max(seen_at), 0) from millpond_worker;

-- name: worker_lease_until
-- Served by the primary key.
select lease_until from millpond_worker where id = ?1;

-- name: worker_is_live
-- Served by the primary key.
select exists (select 1 from millpond_worker where id = :id and lease_until > :now);
