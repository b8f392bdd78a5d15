-- Claims the next messages of the first part, in the order given, that has some. One row with a null offset says why
-- there are none: a suspect waits for a worker with empty hands (it has a partition), the queue is paused (it has
-- none), or it has a limit over all nodes and the caller does not hold its claim lock (it has a subscription alone). What was cancelled is passed by. A lease need not be durable: losing one means another delivery.
-- The parts of a queue are a handful, served by log_partition_part; cursor, head, messages, marks and pauses are
-- served by primary keys.
create function millpond.lease(
    given_now bigint, a_queue integer, classes smallint[], lanes smallint[], messages_max integer,
    bytes_max bigint, hands_empty boolean, a_token uuid, a_worker text, within_limits boolean
) returns table (
    subscription integer, partition integer, leased_at bigint, to_offset bigint, log_offset bigint, message_id uuid,
    attempt integer, releases integer, suspect smallint, sent_at bigint, attempts_max bigint,
    retry_until bigint, checksum integer, kind text, key text, content_type text, headers text, body bytea
) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off as $$
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
    passed bigint;
    one_kind text;
    other_kind text;
    named bigint;
    has_marks boolean;
    marks bigint[];
    first_row bigint;
    whole bit varying;
    ran bit varying;
begin
    perform set_config('synchronous_commit', 'off', true);
    the_time := millpond.time_of(given_now);
    -- Looked at before any lock, so that an empty part costs none.
    for part in
        select p.id, p.lane, p.subscription_id, p.paused, p.limited
        from (
            select p.id, t.lane, t.turn, s.id as subscription_id,
                   exists (select 1 from millpond.queue_limit q where q.queue_id = a_queue) as limited,
                   exists (select 1 from millpond.pause z
                           where z.queue_id in (0, a_queue) and (z.until is null or z.until > the_time)) as paused,
                   (select l.log_offset from millpond.log l where l.partition = p.id
                    order by l.log_offset desc limit 1) as head,
                   (select c.to_offset from millpond.claim c where c.subscription_id = s.id and c.partition = p.id
                    order by c.to_offset desc limit 1) as cursor_at
            from unnest(classes, lanes) with ordinality as t (class, lane, turn)
            join millpond.log_partition p on p.queue_id = a_queue and p.class = t.class and p.lane = t.lane
            join millpond.subscription s on s.queue_id = a_queue and s.name = ''
            offset 0
        ) p
        where p.paused or p.head > coalesce(p.cursor_at, -1)
        order by p.turn
    loop
        if part.paused then
            return next;
            return;
        end if;
        if part.limited and not within_limits then
            subscription := part.subscription_id;
            return next;
            return;
        end if;
        perform pg_advisory_xact_lock(hashtext('millpond.claim'), part.id);
        cursor_at := -1;
        marker := false;
        select c.to_offset, c.token is null into cursor_at, marker
        from millpond.claim c where c.subscription_id = part.subscription_id and c.partition = part.id
        order by c.to_offset desc limit 1;
        cursor_at := coalesce(cursor_at, -1);

        has_marks := exists (select 1 from millpond.cancel x
                             where x.subscription_id = part.subscription_id and x.partition = part.id
                                   and x.log_offset > cursor_at);
        if has_marks then
            -- The cursor moves past the cancelled messages right behind it, by a marker claim (R7).
            select count(*) into passed from (
                select x.log_offset, row_number() over (order by x.log_offset) as place from millpond.cancel x
                where x.subscription_id = part.subscription_id and x.partition = part.id and x.log_offset > cursor_at
                order by x.log_offset limit 10000
            ) next where next.log_offset = cursor_at + next.place;
            if passed > 0 then
                perform millpond.move_cursor(given_now, part.subscription_id, part.id, cursor_at, marker,
                                             cursor_at + passed);
                cursor_at := cursor_at + passed;
                marker := true;
            end if;
        end if;

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
        select max(next.log_offset), sum(next.bytes), min(next.kind), max(next.kind), count(next.kind)
        into last_offset, total_bytes, one_kind, other_kind, named from (
            -- Offsets have no gaps, so a range says the same as a limit, and never means the whole backlog.
            select l.log_offset, octet_length(l.body) as bytes, l.kind collate "C" as kind from millpond.log l
            where l.partition = part.id and l.log_offset between cursor_at + 1 and cursor_at + most
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

        marks := null;
        whole := null;
        ran := null;
        if has_marks then
            select array_agg(x.log_offset) into marks from millpond.cancel x
            where x.subscription_id = part.subscription_id and x.partition = part.id
                  and x.log_offset between cursor_at + 1 and last_offset;
        end if;
        if marks is not null then
            -- They count as settled, with an outcome of their own (4).
            if cardinality(marks) = last_offset - cursor_at then
                perform millpond.move_cursor(given_now, part.subscription_id, part.id, cursor_at, marker, last_offset);
                continue;
            end if;
            whole := repeat('0', (last_offset - cursor_at)::integer)::bit varying;
            ran := repeat('0', (last_offset - cursor_at)::integer * 40)::bit varying;
            for i in 1..cardinality(marks) loop
                whole := set_bit(whole::"bit", (last_offset - marks[i])::integer, 1);
                ran := set_bit(ran::"bit", (last_offset - marks[i])::integer * 40 + 5, 1);
            end loop;
            delete from millpond.cancel x
            where x.subscription_id = part.subscription_id and x.partition = part.id
                  and x.log_offset between cursor_at + 1 and last_offset;
        end if;
        the_time := millpond.time_of(given_now);
        insert into millpond.claim (subscription_id, partition, to_offset, from_offset, token, worker, leased_at, done, runs)
        values (part.subscription_id, part.id, last_offset, cursor_at + 1, a_token, a_worker, the_time, whole, ran);
        -- Nearly always they are of one kind.
        if marks is null and one_kind is not distinct from other_kind
           and named in (0, last_offset - cursor_at) then
            insert into millpond.stat_delta (queue_id, kind, minute, leased)
            values (a_queue, coalesce(one_kind, ''), the_time / 60000000, last_offset - cursor_at);
        else
            insert into millpond.stat_delta (queue_id, kind, minute, leased)
            select a_queue, coalesce(l.kind, ''), the_time / 60000000, count(*) from millpond.log l
            where l.partition = part.id and l.log_offset between cursor_at + 1 and last_offset
                  and (marks is null or l.log_offset <> all (marks))
            group by 2;
        end if;
        -- The old cursor, if all of it is settled, is not needed below a higher claim.
        if marker then
            delete from millpond.claim c
            where c.subscription_id = part.subscription_id and c.partition = part.id and c.to_offset = cursor_at
                  and c.token is null;
        end if;
        first_row := cursor_at + 1;
        if marks is not null then
            select min(l.log_offset) into first_row from millpond.log l
            where l.partition = part.id and l.log_offset between cursor_at + 1 and last_offset
                  and l.log_offset <> all (marks);
        end if;
        -- What is the same in every row is only in the first, and a counter that is 0 stays null: a column that is
        -- null costs nothing on its way.
        return query
        select case when l.log_offset = first_row then part.subscription_id end,
               case when l.log_offset = first_row then part.id end,
               case when l.log_offset = first_row then the_time end,
               case when l.log_offset = first_row then last_offset end,
               l.log_offset, l.message_id, l.attempt, l.releases, l.suspect, coalesce(l.sent_at, l.published_at),
               l.attempts_max, l.retry_until, l.checksum, l.kind, l.key, l.content_type, l.headers, l.body
        from millpond.log l
        where l.partition = part.id and l.log_offset between cursor_at + 1 and last_offset
              and (marks is null or l.log_offset <> all (marks))
        order by l.log_offset;
        return;
    end loop;
    -- A queue in which nothing is ready says all the same that it is paused.
    if exists (select 1 from millpond.pause z where z.queue_id in (0, a_queue) and (z.until is null or z.until > the_time)) then
        return next;
    end if;
end
$$;

-- Of a queue that has a limit over all nodes: when the bucket of its rate is full, the time, and a row for each of its
-- live claims, or one without. The caller holds the claim lock of the queue, taken in a statement before (R5).
-- Everything is served by primary keys and the unique names of subscriptions: of the claims the live ones, and a marker
-- for each partition.
create function millpond.in_hand(given_now bigint, a_queue integer)
returns table (full_at bigint, now bigint, messages bigint, done bit varying) language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
    the_time bigint := millpond.time_of(given_now);
begin
    return query
    select coalesce(l.full_at, 0), the_time, c.to_offset - c.from_offset + 1, c.done
    from (select 1) as one
    left join millpond.queue_limit l on l.queue_id = a_queue
    left join millpond.subscription s on s.queue_id = a_queue and s.name = ''
    left join millpond.claim c on c.subscription_id = s.id and c.token is not null;
end
$$;

-- Moves the cursor of a partition without a lease, by a marker claim (R7). What was marked as cancelled up to there has
-- left. The caller holds the claim lock. Everything is served by primary keys.
create function millpond.move_cursor(
    given_now bigint, a_subscription integer, a_partition integer, from_cursor bigint, from_marker boolean, to_cursor bigint
) returns void language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off as $$
begin
    insert into millpond.claim (subscription_id, partition, to_offset, from_offset, leased_at)
    values (a_subscription, a_partition, to_cursor, from_cursor + 1, millpond.time_of(given_now));
    if from_marker then
        delete from millpond.claim c
        where c.subscription_id = a_subscription and c.partition = a_partition and c.to_offset = from_cursor
              and c.token is null;
    end if;
    delete from millpond.cancel x
    where x.subscription_id = a_subscription and x.partition = a_partition
          and x.log_offset between from_cursor + 1 and to_cursor;
end
$$;

-- Writes a worker's heartbeat, moves its lease, and answers the time, what is wished of the worker, the claims that it
-- holds, and which messages of each somebody wants stopped. A renewal that was on its way when its worker ended does
-- not bring it back. Losing one in a crash only means another delivery.
-- What is there is served by the primary key of millpond.worker, the claims by claim_worker, the marks by their
-- primary key.
create function millpond.renew(
    given_now bigint, a_worker text, a_host text, its_queues text[], its_slots integer, its_busy integer,
    its_error text, a_lease bigint, its_facts text
) returns table (
    now bigint, wish text, subscription integer, partition integer, to_offset bigint, token uuid, cancels bigint[]
) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
    the_time bigint := millpond.time_of(given_now);
    wished text;
begin
    perform set_config('synchronous_commit', 'off', true);
    insert into millpond.worker as w (id, host, queues, slots, busy, error, started_at, seen_at, lease_until, lease, facts)
    values (a_worker, a_host, its_queues, its_slots, its_busy, its_error, the_time, the_time, the_time + a_lease,
            a_lease, its_facts)
    on conflict (id) do update
    set queues = excluded.queues, slots = excluded.slots, busy = excluded.busy, error = excluded.error,
        seen_at = excluded.seen_at, lease_until = excluded.lease_until, lease = excluded.lease, facts = excluded.facts
    where not w.stopped;
    select w.wish into wished from millpond.worker w where w.id = a_worker;
    return query
    select the_time, wished, c.subscription_id, c.partition, c.to_offset, c.token,
           case when c.token is not null then (
               select array_agg(x.log_offset order by x.log_offset) from millpond.cancel x
               where x.subscription_id = c.subscription_id and x.partition = c.partition
                     and x.log_offset between c.from_offset and c.to_offset) end
    from (select 1) as one
    left join millpond.claim c on c.worker = a_worker and c.token is not null and c.expires_at is null;
end
$$;

-- Of the asked queues: each part that has messages beyond the cursor, paused queues left out unless they are asked for.
-- What is cancelled there is not ready; a lease must pass it all the same. And, in every row, the time, when the next
-- outbox row is due, and the number of the declarations. One question for an idle node, whatever the number of its
-- queues (R14). A few look-ups a part: the ends of millpond.log and millpond.claim, one row, and the marks of cancelled
-- messages. The outbox is served by outbox_ready, from `low` on (R13). With `looks` it also says whether a claim has expired,
-- by the indexes of millpond.expired, so that an idle node need not ask that too (R14).
create function millpond.pulse(given_now bigint, queues integer[], paused boolean, low bigint, looks boolean)
returns table (
    now bigint, next_due bigint, declarations bigint, queue_id integer, class smallint, lane smallint, ready bigint,
    oldest bigint, expired boolean
) language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
    the_time bigint := millpond.time_of(given_now);
begin
    return query
    select the_time, (select o.ready_at from millpond.outbox o where o.ready_at >= low order by o.ready_at, o.seq limit 1),
           (select d.number from millpond.declarations d where d.only_one = 1),
           h.queue_id, h.class, h.lane,
           h.head - h.cursor_at - (select count(*) from millpond.cancel x
                                   where x.subscription_id = h.subscription_id and x.partition = h.id
                                         and x.log_offset > h.cursor_at),
           (select l.published_at from millpond.log l where l.partition = h.id and l.log_offset = h.cursor_at + 1),
           looks and (
               exists (select 1 from millpond.worker w join millpond.claim c on c.worker = w.id
                       where w.lease_until <= the_time and c.expires_at is null and c.token is not null)
               or exists (select 1 from millpond.claim c where c.expires_at <= the_time and c.token is not null)
               or exists (select 1 from millpond.claim c
                          where c.worker is not null and c.token is not null and c.expires_at is null
                                and not exists (select 1 from millpond.worker w where w.id = c.worker)))
    from (select 1) as one
    left join (
        select p.id, p.queue_id, p.class, p.lane, s.id as subscription_id,
               coalesce((select l.log_offset from millpond.log l where l.partition = p.id
                         order by l.log_offset desc limit 1), -1) as head,
               coalesce((select c.to_offset from millpond.claim c
                         where c.subscription_id = s.id and c.partition = p.id
                         order by c.to_offset desc limit 1), -1) as cursor_at
        from unnest(queues) as asked (id)
        join millpond.log_partition p on p.queue_id = asked.id
        join millpond.subscription s on s.queue_id = asked.id and s.name = ''
        where paused or not exists (select 1 from millpond.pause z
                                    where z.queue_id in (0, asked.id) and (z.until is null or z.until > the_time))
        offset 0
    ) h on h.head > h.cursor_at;
end
$$;

-- Claims of workers whose lease is over and claims that outlived their own, if the one who asks has a lease that lasts.
-- Asked every second by every node. The first part is served by claim_worker, the second by claim_expires. The third
-- finds claims whose worker has no row any more; it walks claim_worker, which is as long as there are claims.
create function millpond.expired(given_now bigint, a_worker text, since bigint, claims_max integer)
returns table (
    subscription integer, partition integer, to_offset bigint, from_offset bigint, done bit varying, token uuid,
    worker text, in_hand integer
) language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
    the_time bigint := millpond.time_of(given_now);
begin
    if a_worker is not null and not exists (
        select 1 from millpond.worker w where w.id = a_worker and w.lease_until > the_time
    ) then
        return;
    end if;
    return query
    select e.subscription_id, e.partition, e.to_offset, e.from_offset, e.done, e.token, e.worker, e.in_hand
    from (
        select c.*
        from millpond.worker w
        join millpond.claim c on c.worker = w.id
        where w.lease_until <= the_time and (w.stopped or the_time - since >= w.lease / 3)
              and c.expires_at is null and c.token is not null
        union all
        select c.* from millpond.claim c where c.expires_at <= the_time and c.token is not null
        union all
        select c.* from millpond.claim c
        where c.worker is not null and c.token is not null and c.expires_at is null
              and not exists (select 1 from millpond.worker w where w.id = c.worker)
    ) e
    limit claims_max;
end
$$;
