-- name: worker_renew
-- One that has ended stays as it is. What is there is served by the primary key.
insert into millpond_worker (id, host, queues, slots, busy, error, started_at, seen_at, lease_until, lease, facts)
values ($1, $2, $3, $4, $5, $6, $now, $now, $now + $7, $7, $8)
on duplicate key update
    queues = if(stopped, queues, values(queues)), slots = if(stopped, slots, values(slots)),
    busy = if(stopped, busy, values(busy)), error = if(stopped, error, values(error)),
    seen_at = if(stopped, seen_at, values(seen_at)), lease_until = if(stopped, lease_until, values(lease_until)),
    lease = if(stopped, lease, values(lease)), facts = if(stopped, facts, values(facts));

-- name: worker_seen
-- The time, what is wished of a worker, what it holds under its own lease, and what of that somebody wants stopped: a row
-- for each claim and mark, and one if there is none. Served by the primary key, claim_worker, and that of the marks.
select $now, (select wish from millpond_worker where id = $1), c.subscription_id, c.`partition`, c.to_offset, c.token,
       x.log_offset
from (select 1) one
left join millpond_claim c on c.worker = $1 and c.token is not null and c.expires_at is null
left join millpond_cancel x on x.subscription_id = c.subscription_id and x.`partition` = c.`partition`
                               and x.log_offset between c.from_offset and c.to_offset
order by c.subscription_id, c.`partition`, c.to_offset, x.log_offset;

-- name: worker_end
-- Served by the primary key.
update millpond_worker set lease_until = least(lease_until, $now), seen_at = $now, busy = 0, stopped = 1 where id = $1;

-- name: worker_lease_until
-- Served by the primary key.
select lease_until from millpond_worker where id = $1;

-- name: worker_lock
-- A takeover is per worker: two of them count what it had in hand one after the other. Served by the primary key.
select 1 from millpond_worker where id = $1 for update;

-- name: pulse
-- Of the asked queues: each part that has messages beyond the cursor, paused queues left out. What is cancelled there is
-- not ready; a lease must pass it all the same. And, in every row, the time, when the next outbox row is due, and the
-- number of the declarations; and, if that is asked, whether any claim outlived its lease (see claim_expired, which is
-- stricter). A few look-ups a part, served by log_partition_part, subscription_name and primary keys; the outbox by
-- outbox_ready; claims by claim_worker and claim_expires, the last part of which walks claim_worker.
select $now, (select min(ready_at) from millpond_outbox), (select number from millpond_declarations where only_one = 1),
       h.queue_id, h.class, h.lane,
       h.next_offset - 1 - h.cursor_at - (select count(*) from millpond_cancel x
                                          where x.subscription_id = h.subscription_id and x.`partition` = h.id
                                                and x.log_offset > h.cursor_at),
       (select l.published_at from millpond_log l where l.`partition` = h.id and l.log_offset = h.cursor_at + 1),
       $2 and (
           exists (select 1 from millpond_worker w join millpond_claim c on c.worker = w.id
                   where w.lease_until <= $now and c.expires_at is null and c.token is not null)
           or exists (select 1 from millpond_claim c where c.expires_at <= (select $now) and c.token is not null)
           or exists (select 1 from millpond_claim c
                      where c.worker is not null and c.token is not null and c.expires_at is null
                            and not exists (select 1 from millpond_worker w where w.id = c.worker)))
from (select 1) one
left join (
    select p.id, p.queue_id, p.class, p.lane, p.next_offset, s.id as subscription_id,
           coalesce((select max(c.to_offset) from millpond_claim c
                     where c.subscription_id = s.id and c.`partition` = p.id), -1) as cursor_at
    from millpond_log_partition p
    join millpond_subscription s on s.queue_id = p.queue_id and s.name = ''
    where p.queue_id in ($1)
          and not exists (select 1 from millpond_pause z
                          where z.queue_id in (0, p.queue_id) and (z.until is null or z.until > (select $now)))
) h on h.cursor_at < h.next_offset - 1;
