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
-- Claims of workers whose lease is over and claims that outlived their own. The time is bound, so these two are
-- served by indexes, claim_worker and claim_expires. The third part finds claims whose worker has no row any more; it
-- walks claim_worker, which is as long as there are claims.
select e.subscription_id, e.partition, e.to_offset, e.from_offset, e.done, e.token, e.worker, e.in_hand
from (
    select c.*
    from millpond.worker w
    join millpond.claim c on c.worker = w.id
    where w.lease_until <= $1 and (w.stopped or $1 - $2 >= w.lease / 3) and c.expires_at is null and c.token is not null
    union all
    select c.* from millpond.claim c where c.expires_at <= $1 and c.token is not null
    union all
    select c.* from millpond.claim c
    where c.worker is not null and c.token is not null and c.expires_at is null
          and not exists (select 1 from millpond.worker w where w.id = c.worker)
) e
limit $3;

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
