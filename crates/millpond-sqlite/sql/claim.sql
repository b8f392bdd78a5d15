-- name: claim_top
-- The cursor. Served by the primary key, its last entry.
select to_offset, token is null from millpond_claim
where subscription_id = ?1 and partition = ?2
order by to_offset desc limit 1;

-- name: claim_take
-- One claim for exactly what was read. It inherits its worker's lease.
insert into millpond_claim (subscription_id, partition, to_offset, from_offset, token, worker, leased_at, done, runs)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, x'', x'');

-- name: claim_live
-- The live claims of a queue that has a limit; the store counts what their done sets leave. Served by the primary key:
-- live claims, and a marker for each partition.
select from_offset, to_offset, done from millpond_claim where subscription_id = ?1 and token is not null;

-- name: claim_get
-- Served by the primary key.
select from_offset, token, worker, leased_at, done, runs from millpond_claim
where subscription_id = ?1 and partition = ?2 and to_offset = ?3;

-- name: claim_progress
-- Served by the primary key.
update millpond_claim set done = ?4, runs = ?5
where subscription_id = ?1 and partition = ?2 and to_offset = ?3;

-- name: claim_mark
-- Finished, but the highest: it stays as the cursor. Served by the primary key.
update millpond_claim
set token = null, worker = null, expires_at = null, in_hand = null, done = x'', runs = x''
where subscription_id = ?1 and partition = ?2 and to_offset = ?3;

-- name: claim_delete
-- Served by the primary key.
delete from millpond_claim where subscription_id = ?1 and partition = ?2 and to_offset = ?3;

-- name: claim_above
-- Whether a claim is not the highest. Served by the primary key.
select exists (select 1 from millpond_claim where subscription_id = ?1 and partition = ?2 and to_offset > ?3);

-- name: claim_of_worker
-- Served by millpond_claim_worker.
select subscription_id, partition, to_offset, token from millpond_claim indexed by millpond_claim_worker
where worker = ?1 and token is not null and expires_at is null;

-- name: claim_expired
-- Claims of workers whose lease is over and claims that outlived their own. The scalar time is bound, so
-- these two are served by indexes, millpond_claim_worker and millpond_claim_expires. The third part finds claims whose
-- worker has no row any more; it walks millpond_claim_worker, which is as long as there are live claims.
select c.subscription_id, c.partition, c.to_offset, c.from_offset, c.done, c.token, c.worker, c.in_hand
from millpond_worker w
join millpond_claim c on c.worker = w.id
where w.lease_until <= :now and (w.stopped = 1 or :now - :since >= w.lease / 3) and c.expires_at is null
      and c.token is not null
union all
select c.subscription_id, c.partition, c.to_offset, c.from_offset, c.done, c.token, c.worker, c.in_hand
from millpond_claim c
where c.expires_at <= :now and c.token is not null
union all
select c.subscription_id, c.partition, c.to_offset, c.from_offset, c.done, c.token, c.worker, c.in_hand
from millpond_claim c
where c.worker is not null and c.token is not null and c.expires_at is null
      and not exists (select 1 from millpond_worker w where w.id = c.worker)
limit :claims_max;

-- name: claim_in_hand_of_worker
-- Every claim that a worker holds under its own lease. Served by millpond_claim_worker.
select subscription_id, partition, to_offset, from_offset, done
from millpond_claim indexed by millpond_claim_worker
where worker = ?1 and token is not null and expires_at is null;

-- name: claim_set_in_hand
-- Once and never again: a reclaimer that dies charges nobody. Served by the primary key.
update millpond_claim set in_hand = ?4
where subscription_id = ?1 and partition = ?2 and to_offset = ?3 and in_hand is null;

-- name: claim_take_over
-- The compare-and-set: still that token. The claim keeps the name of the worker that lost it.
-- Served by the primary key.
update millpond_claim set token = ?5, expires_at = ?6
where subscription_id = ?1 and partition = ?2 and to_offset = ?3 and token = ?4;
