-- Moves due rows of the outbox to the log, each deleted and appended in one transaction. Rows that another relay
-- holds are passed over: order does not come from this (unordered queues only). The append locks are taken in
-- ascending order (R2), before the highest offsets are read (R1). A move need not be durable: a crash undoes both
-- halves. Nothing is known to be due before `low` (R13). Due rows are served by outbox_ready, the ends of the log by its
-- primary key.
create function millpond.relay(given_now bigint, rows_max integer, low bigint)
returns table (moved integer, queues integer[], next_due bigint, now bigint)
language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
    the_time bigint := millpond.time_of(given_now);
    due bigint[];
    due_queues integer[];
    due_classes smallint[];
    due_lanes smallint[];
    part record;
    base bigint;
    published bigint;
begin
    perform set_config('synchronous_commit', 'off', true);
    with locked as materialized (
        select o.seq, o.queue_id, o.class, o.lane, o.ready_at from millpond.outbox o where o.ready_at >= low and o.ready_at <= the_time
        order by o.ready_at, o.seq limit rows_max
        for update skip locked
    )
    select array_agg(l.seq), array_agg(l.queue_id), array_agg(l.class), array_agg(l.lane), array_agg(distinct l.queue_id)
    into due, due_queues, due_classes, due_lanes, queues
    from (select * from locked order by ready_at, seq) l;
    moved := coalesce(cardinality(due), 0);
    if moved > rows_max then
        raise exception 'the relay locked % rows and asked for %', moved, rows_max;
    end if;
    if moved > 0 then
        for part in
            select millpond.partition_of(p.queue_id, p.class, p.lane) as id, p.queue_id, p.class, p.lane
            from (select distinct d.queue_id, d.class, d.lane
                  from unnest(due_queues, due_classes, due_lanes) as d (queue_id, class, lane)) p
            order by 1
        loop
            perform pg_advisory_xact_lock(hashtext('millpond.append'), part.id);
            base := -1;
            published := null;
            select l.log_offset, l.published_at into base, published
            from millpond.log l where l.partition = part.id order by l.log_offset desc limit 1;
            base := coalesce(base, -1);
            published := greatest(published, millpond.time_of(given_now));
            -- Rows are asked for by their number alone: with a condition on their queue, a plan that was made while the
            -- table was small would read all that waits for it.
            insert into millpond.log (partition, log_offset, published_at, sent_at, message_id, attempt, releases,
                                      suspect, via_outbox, attempts_max, retry_until, checksum, kind, key,
                                      content_type, headers, body, reason)
            select part.id, base + d.place, published, o.sent_at, o.message_id,
                   o.attempt, o.releases, o.suspect, true, o.attempts_max, o.retry_until, o.checksum, o.kind, o.key,
                   o.content_type, o.headers, o.body, case when o.retry_of is null then o.reason else 'redrive' end
            from (select u.seq, row_number() over (order by u.place) as place
                  from unnest(due, due_queues, due_classes, due_lanes) with ordinality
                       as u (seq, queue_id, class, lane, place)
                  where u.queue_id = part.queue_id and u.class = part.class and u.lane = part.lane) d
            cross join lateral (select o.* from millpond.outbox o where o.seq = d.seq offset 0) o;
        end loop;
        delete from millpond.outbox o where o.seq = any (due);
    end if;
    select o.ready_at into next_due from millpond.outbox o where o.ready_at >= low order by o.ready_at, o.seq limit 1;
    now := the_time;
    return next;
end
$$;

-- The first offset from `low` up to `high` that was published after an instant; `high` if none was. A row that is
-- missing was deleted, so it is older than any that is kept. Each step is served by the primary key of millpond.log.
create function millpond.published_after(a_partition integer, low bigint, high bigint, instant bigint)
returns bigint language plpgsql stable set enable_seqscan = off as $$
declare
    middle bigint;
    at bigint;
begin
    while low < high loop
        middle := low + (high - low) / 2;
        select l.published_at into at from millpond.log l where l.partition = a_partition and l.log_offset = middle;
        if at is null or at <= instant then
            low := middle + 1;
        else
            high := middle;
        end if;
    end loop;
    return low;
end
$$;
