-- name: lease_gate
-- Whether a pause holds a queue, and whether it has a limit over all nodes. Served by the primary keys.
select exists (select 1 from millpond_pause where queue_id in (0, $1) and (until is null or until > (select $now))),
       exists (select 1 from millpond_queue_limit where queue_id = $1);

-- name: lease_parts
-- The parts of a queue with their ends and cursors. A handful of rows.
-- Served by log_partition_part and subscription_name; cursors by the primary key of the claims.
select p.class, p.lane, p.id, s.id, p.next_offset,
       coalesce((select max(c.to_offset) from millpond_claim c
                 where c.subscription_id = s.id and c.`partition` = p.id), -1)
from millpond_log_partition p
join millpond_subscription s on s.queue_id = p.queue_id and s.name = ''
where p.queue_id = $1;

-- name: claim_lock_part
-- Nothing of the partition is leased meanwhile, and its cursor stays. A statement of its own: what is read after it is
-- read after the lock (R1). Served by the primary key.
select 1 from millpond_claim_lock where subscription_id = $1 and `partition` = $2 for update;

-- name: claim_cursor
-- The cursor, and whether it is a marker. Served by the primary key, its last entry.
select to_offset, token is null from millpond_claim
where subscription_id = $1 and `partition` = $2
order by to_offset desc limit 1;

-- name: claim_live
-- The live claims of a queue that has a limit; the store counts what their done sets leave. Served by the primary key:
-- live claims, and a marker for each partition.
select to_offset - from_offset + 1, done from millpond_claim where subscription_id = $1 and token is not null;

-- name: claim_add
insert into millpond_claim (subscription_id, `partition`, to_offset, from_offset, token, worker, leased_at, done, runs)
values ($1, $2, $3, $4, $5, $6, $now, $7, $8);

-- name: claim_add_marker
insert into millpond_claim (subscription_id, `partition`, to_offset, from_offset, leased_at) values ($1, $2, $3, $4, $now);

-- name: claim_drop_marker
-- The old cursor, if all of it is settled, is not needed below a higher claim. Served by the primary key.
delete from millpond_claim where subscription_id = $1 and `partition` = $2 and to_offset = $3 and token is null;

-- name: claim_leased_at
-- Served by the primary key.
select leased_at from millpond_claim where subscription_id = $1 and `partition` = $2 and to_offset = $3;

-- name: claim_top
-- The cursor. Served by the primary key, its last entry.
select to_offset from millpond_claim
where subscription_id = $1 and `partition` = $2
order by to_offset desc limit 1;

-- name: claim_get
-- Served by the primary key.
select from_offset, done from millpond_claim
where subscription_id = $1 and `partition` = $2 and to_offset = $3 and token = $4;

-- name: claim_get_shared
-- The same, last of all in a job's transaction, with a lock that makes whoever settles the message without an
-- acknowledgement wait for the commit (R15). Served by the primary key.
select from_offset, done from millpond_claim
where subscription_id = $1 and `partition` = $2 and to_offset = $3 and token = $4
lock in share mode;

-- name: claim_settle_lock
-- Waits for an effect that is committing (R15). Served by the primary key.
select from_offset, leased_at, worker, done, runs from millpond_claim
where subscription_id = $1 and `partition` = $2 and to_offset = $3 and token = $4
for update;

-- name: claim_home
-- The queue of a claim, whether it keeps history, and whether the claim is the cursor. Served by primary keys.
select p.queue_id, p.class, q.history, q.name,
       exists (select 1 from millpond_claim c
               where c.subscription_id = $1 and c.`partition` = $2 and c.to_offset > $3)
from millpond_log_partition p
join millpond_queue q on q.id = p.queue_id
where p.id = $2;

-- name: claim_record
-- Served by the primary key.
update millpond_claim set done = $4, runs = $5 where subscription_id = $1 and `partition` = $2 and to_offset = $3;

-- name: claim_delete
-- Served by the primary key.
delete from millpond_claim where subscription_id = $1 and `partition` = $2 and to_offset = $3;

-- name: claim_to_marker
-- The highest claim is the cursor: it stays, as a marker (R7). Served by the primary key.
update millpond_claim set token = null, expires_at = null, in_hand = null, done = null, runs = null
where subscription_id = $1 and `partition` = $2 and to_offset = $3;

-- name: claim_expired
-- Claims of workers whose lease is over, claims that outlived their own, and claims whose worker has no row any more.
-- Nothing, if the worker who asks is itself not live.
-- Served by claim_worker and claim_expires; the third part walks claim_worker, which is as long as there are claims.
select e.subscription_id, e.`partition`, e.to_offset, e.from_offset, e.done, e.token, e.worker, e.in_hand
from (
    (select c.subscription_id, c.`partition`, c.to_offset, c.from_offset, c.done, c.token, c.worker, c.in_hand
     from millpond_worker w
     join millpond_claim c on c.worker = w.id
     where w.lease_until <= $now and (w.stopped or $now - $2 >= w.lease div 3) and c.expires_at is null
           and c.token is not null)
    union all
    (select c.subscription_id, c.`partition`, c.to_offset, c.from_offset, c.done, c.token, c.worker, c.in_hand
     from millpond_claim c
     where c.expires_at <= (select $now) and c.token is not null)
    union all
    (select c.subscription_id, c.`partition`, c.to_offset, c.from_offset, c.done, c.token, c.worker, c.in_hand
     from millpond_claim c
     where c.worker is not null and c.token is not null and c.expires_at is null
           and not exists (select 1 from millpond_worker w where w.id = c.worker))
) e
where $1 is null or exists (select 1 from millpond_worker l where l.id = $1 and l.lease_until > $now)
limit $3;

-- name: claim_in_hand_of_worker
-- Every claim that a worker holds under its own lease. Served by claim_worker.
select subscription_id, `partition`, to_offset, from_offset, done
from millpond_claim
where worker = $1 and token is not null and expires_at is null
order by 1, 2, 3;

-- name: claim_set_in_hand
-- Once and never again: a reclaimer that dies charges nobody. Served by the primary key.
update millpond_claim set in_hand = $4
where subscription_id = $1 and `partition` = $2 and to_offset = $3 and in_hand is null;

-- name: claim_in_hand
-- What was written, by whoever wrote it first. Served by the primary key.
select in_hand from millpond_claim where subscription_id = $1 and `partition` = $2 and to_offset = $3;

-- name: claim_lock
-- An effect that is committing is waited for (R9). Served by the primary key.
select from_offset, done from millpond_claim
where subscription_id = $1 and `partition` = $2 and to_offset = $3 and token = $4
for update;

-- name: claim_take_over
-- The compare-and-set: still that token. The claim keeps the name of the worker that lost it.
-- Served by the primary key.
update millpond_claim set token = $5, expires_at = $6
where subscription_id = $1 and `partition` = $2 and to_offset = $3 and token = $4;

-- name: cancel_marks
-- Cancelled messages beyond the cursor. Served by the primary keys.
select log_offset from millpond_cancel
where subscription_id = $1 and `partition` = $2
      and log_offset > coalesce((select max(c.to_offset) from millpond_claim c
                                 where c.subscription_id = $1 and c.`partition` = $2), -1)
order by log_offset limit $3;

-- name: cancel_of_offsets
-- Served by the primary key.
select log_offset, actor, reason from millpond_cancel
where subscription_id = $1 and `partition` = $2 and log_offset in ($3);

-- name: cancel_delete_range
-- Served by the primary key.
delete from millpond_cancel where subscription_id = $1 and `partition` = $2 and log_offset between $3 and $4;

-- name: cancel_delete
-- Served by the primary key.
delete from millpond_cancel where subscription_id = $1 and `partition` = $2 and log_offset in ($3);
