-- Claims the next messages of the first part, in the order given, that has some. One row with a null offset says
-- that a suspect waits for a worker with empty hands. A lease need not be durable: losing one means another delivery.
-- The parts of a queue are a handful, served by log_partition_part; cursor, head and messages are served by the
-- primary keys of millpond.claim and millpond.log.
create function millpond.lease(
    given_now bigint, a_queue integer, classes smallint[], lanes smallint[], messages_max integer,
    bytes_max bigint, hands_empty boolean, a_token uuid, a_worker text
) returns table (
    subscription integer, partition integer, leased_at bigint, log_offset bigint, message_id uuid,
    attempt integer, releases integer, suspect smallint, sent_at bigint, attempts_max bigint,
    retry_until bigint, checksum integer, kind text, key text, content_type text, headers text, body bytea
) language plpgsql set enable_seqscan = off as $$
#variable_conflict use_column
declare
    the_time bigint;
    part record;
    cursor_at bigint;
    marker boolean;
    most integer;
    first_suspect smallint;
    last_offset bigint;
    total_bytes bigint;
begin
    perform set_config('synchronous_commit', 'off', true);
    for part in
        select p.id, t.lane, s.id as subscription_id
        from unnest(classes, lanes) with ordinality as t (class, lane, turn)
        join millpond.log_partition p on p.queue_id = a_queue and p.class = t.class and p.lane = t.lane
        join millpond.subscription s on s.queue_id = a_queue and s.name = ''
        order by t.turn
    loop
        -- Looked at before the lock, so that an empty part costs no lock.
        continue when coalesce((select l.log_offset from millpond.log l where l.partition = part.id
                                order by l.log_offset desc limit 1), -1)
                   <= coalesce((select c.to_offset from millpond.claim c
                                where c.subscription_id = part.subscription_id and c.partition = part.id
                                order by c.to_offset desc limit 1), -1);
        perform pg_advisory_xact_lock(hashtext('millpond.claim'), part.id);
        cursor_at := -1;
        marker := false;
        select c.to_offset, c.token is null into cursor_at, marker
        from millpond.claim c where c.subscription_id = part.subscription_id and c.partition = part.id
        order by c.to_offset desc limit 1;
        cursor_at := coalesce(cursor_at, -1);

        most := messages_max;
        if part.lane = 2 then
            -- Of the suspects, one group.
            select coalesce(l.suspect, 0) into first_suspect
            from millpond.log l where l.partition = part.id and l.log_offset = cursor_at + 1;
            continue when not found;
            if first_suspect = 1 and not hands_empty then
                subscription := part.subscription_id;
                partition := part.id;
                return next;
                return;
            end if;
            most := least(most, greatest(first_suspect, 1));
        end if;
        select max(next.log_offset), sum(next.bytes) into last_offset, total_bytes from (
            select l.log_offset, octet_length(l.body) as bytes from millpond.log l
            where l.partition = part.id and l.log_offset > cursor_at
            order by l.log_offset limit most
        ) next;
        continue when last_offset is null;
        if part.lane = 2 then
            select coalesce(min(l.log_offset) - 1, last_offset) into last_offset from millpond.log l
            where l.partition = part.id and l.log_offset between cursor_at + 1 and last_offset
                  and coalesce(l.suspect, 0) <> first_suspect;
        end if;
        if total_bytes > bytes_max then
            -- Always one message, however large.
            select coalesce(max(next.log_offset), cursor_at + 1) into last_offset from (
                select l.log_offset, sum(octet_length(l.body)) over (order by l.log_offset) as bytes
                from millpond.log l
                where l.partition = part.id and l.log_offset between cursor_at + 1 and last_offset
            ) next where next.bytes <= bytes_max;
        end if;

        the_time := millpond.time_of(given_now);
        insert into millpond.claim (subscription_id, partition, to_offset, from_offset, token, worker, leased_at)
        values (part.subscription_id, part.id, last_offset, cursor_at + 1, a_token, a_worker, the_time);
        -- The old cursor, if all of it is settled, is not needed below a higher claim.
        if marker then
            delete from millpond.claim c
            where c.subscription_id = part.subscription_id and c.partition = part.id and c.to_offset = cursor_at
                  and c.token is null;
        end if;
        -- What is the same in every row is only in the first, and a counter that is 0 stays null: a column that is
        -- null costs nothing on its way.
        return query
        select case when l.log_offset = cursor_at + 1 then part.subscription_id end,
               case when l.log_offset = cursor_at + 1 then part.id end,
               case when l.log_offset = cursor_at + 1 then the_time end,
               l.log_offset, l.message_id, l.attempt, l.releases, l.suspect, coalesce(l.sent_at, l.published_at),
               l.attempts_max, l.retry_until, l.checksum, l.kind, l.key, l.content_type, l.headers, l.body
        from millpond.log l
        where l.partition = part.id and l.log_offset between cursor_at + 1 and last_offset
        order by l.log_offset;
        return;
    end loop;
end
$$;

-- Writes a worker's heartbeat, moves its lease, and answers the time and the claims that it holds. A renewal that was
-- on its way when its worker ended does not bring it back. Losing one in a crash only means another delivery.
-- What is there is served by the primary key of millpond.worker; the claims are served by claim_worker.
create function millpond.renew(
    given_now bigint, a_worker text, a_host text, its_queues text[], its_slots integer, its_busy integer,
    its_error text, a_lease bigint
) returns table (now bigint, subscription integer, partition integer, to_offset bigint, token uuid)
language plpgsql set enable_seqscan = off as $$
#variable_conflict use_column
declare
    the_time bigint := millpond.time_of(given_now);
begin
    perform set_config('synchronous_commit', 'off', true);
    insert into millpond.worker as w (id, host, queues, slots, busy, error, started_at, seen_at, lease_until, lease)
    values (a_worker, a_host, its_queues, its_slots, its_busy, its_error, the_time, the_time, the_time + a_lease, a_lease)
    on conflict (id) do update
    set queues = excluded.queues, slots = excluded.slots, busy = excluded.busy, error = excluded.error,
        seen_at = excluded.seen_at, lease_until = excluded.lease_until, lease = excluded.lease
    where not w.stopped;
    return query
    select the_time, c.subscription_id, c.partition, c.to_offset, c.token
    from (select 1) as one
    left join millpond.claim c on c.worker = a_worker and c.token is not null and c.expires_at is null;
end
$$;

-- Of the asked queues: each part that has messages beyond the cursor. And, in the first row, the time and when the
-- next outbox row is due. One question for an idle node, whatever the number of its queues (R14).
-- Three look-ups a part: the ends of millpond.log and millpond.claim, and one row. The outbox is served by outbox_ready.
create function millpond.pulse(given_now bigint, queues integer[])
returns table (now bigint, next_due bigint, queue_id integer, class smallint, lane smallint, ready bigint, oldest bigint)
language plpgsql stable set enable_seqscan = off as $$
#variable_conflict use_column
begin
    return query
    select millpond.time_of(given_now), (select o.ready_at from millpond.outbox o order by o.ready_at, o.seq limit 1),
           h.queue_id, h.class, h.lane, h.head - h.cursor_at,
           (select l.published_at from millpond.log l where l.partition = h.id and l.log_offset = h.cursor_at + 1)
    from (select 1) as one
    left join (
        select p.id, p.queue_id, p.class, p.lane,
               coalesce((select l.log_offset from millpond.log l where l.partition = p.id
                         order by l.log_offset desc limit 1), -1) as head,
               coalesce((select c.to_offset from millpond.claim c
                         where c.subscription_id = s.id and c.partition = p.id
                         order by c.to_offset desc limit 1), -1) as cursor_at
        from unnest(queues) as asked (id)
        join millpond.log_partition p on p.queue_id = asked.id
        join millpond.subscription s on s.queue_id = asked.id and s.name = ''
        offset 0
    ) h on h.head > h.cursor_at;
end
$$;
