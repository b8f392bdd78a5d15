-- name: inbox_add
-- Waits for another transaction that has the same message's row. What is there is served by the primary key.
insert into millpond.inbox (subscription_id, message_id, committed_at)
select $1, l.message_id, millpond.time_of($2)
from millpond.log l where l.partition = $3 and l.log_offset = $4
on conflict do nothing;

-- name: inbox_known
-- Which of these messages have a committed effect. Served by the primary key.
select message_id from millpond.inbox where subscription_id = $1 and message_id = any ($2);

-- name: claim_still_held
-- Whether a claim has this token still and the message's done bit is clear. Served by the primary key.
select true from millpond.claim c
where c.subscription_id = $1 and c.partition = $2 and c.to_offset = $3 and c.token = $4
      and $5 between c.from_offset and c.to_offset
      and (c.done is null or get_bit(c.done, (c.to_offset - $5)::integer) = 0);

-- name: claim_still_held_at_commit
-- The same, last of all, with a lock that lets other messages of the claim be settled but makes whoever settles this
-- one without an acknowledgement wait for the commit (R15). Served by the primary key.
select true from millpond.claim c
where c.subscription_id = $1 and c.partition = $2 and c.to_offset = $3 and c.token = $4
      and $5 between c.from_offset and c.to_offset
      and (c.done is null or get_bit(c.done, (c.to_offset - $5)::integer) = 0)
for key share;
