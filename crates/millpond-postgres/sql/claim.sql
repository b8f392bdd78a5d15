-- name: claim_top
-- The cursor. Served by the primary key, its last entry.
select to_offset from millpond.claim
where subscription_id = $1 and partition = $2
order by to_offset desc limit 1;

-- name: claim_get
-- Served by the primary key.
select from_offset, done from millpond.claim
where subscription_id = $1 and partition = $2 and to_offset = $3 and token = $4;

-- name: claim_expired
-- Served by indexes; see the function.
select * from millpond.expired($1, $2, $3, $4);

-- name: claim_in_hand_of_worker
-- Every claim that a worker holds under its own lease. Served by claim_worker.
select subscription_id, partition, to_offset, from_offset, done
from millpond.claim
where worker = $1 and token is not null and expires_at is null
order by 1, 2, 3;

-- name: claim_set_in_hand
-- Once and never again: a reclaimer that dies charges nobody. Served by the primary key.
update millpond.claim set in_hand = $4
where subscription_id = $1 and partition = $2 and to_offset = $3 and in_hand is null;

-- name: claim_in_hand
-- What was written, by whoever wrote it first. Served by the primary key.
select in_hand from millpond.claim where subscription_id = $1 and partition = $2 and to_offset = $3;

-- name: claim_lock
-- An effect that is committing is waited for (R9); a plain update would not wait. Served by the primary key.
select from_offset, done from millpond.claim
where subscription_id = $1 and partition = $2 and to_offset = $3 and token = $4
for update;

-- name: claim_take_over
-- The compare-and-set: still that token. The claim keeps the name of the worker that lost it.
-- Served by the primary key.
update millpond.claim set token = $5, expires_at = $6
where subscription_id = $1 and partition = $2 and to_offset = $3 and token = $4;
