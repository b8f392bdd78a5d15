-- name: dead_letter_redriven
-- Marks it, once: the dead letter stays and names the message that was made of it. A new life: another id, no
-- attempts, no deadline. The relay appends it behind what was sent before.
-- Served by the unique (message_id, subscription_id).
with marked as (
    update millpond.dead_letter d set redriven_as = $2 where d.message_id = $1 and d.redriven_as is null
    returning d.*
), put as (
    insert into millpond.outbox (message_id, queue_id, class, lane, reason, ready_at, created_at, sent_at, attempt,
                                 releases, suspect, attempts_max, checksum, kind, key, content_type, headers, body)
    select $2, m.queue_id, m.class, 0, $3, millpond.time_of($4), millpond.time_of($4), millpond.time_of($4), 0,
           0, 0, m.attempts_max, m.checksum, m.kind, m.key, m.content_type, m.headers, m.body
    from marked m
)
insert into millpond.stat_delta (queue_id, kind, minute, sent)
select m.queue_id, coalesce(m.kind, ''), millpond.time_of($4) / 60000000, 1 from marked m;
