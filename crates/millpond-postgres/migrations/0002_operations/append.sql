-- Appends rows to one partition. The lock and the read of the highest offset are two statements, because one
-- statement has one snapshot, taken before the lock is granted (R1). A deadline is given as an instant or as a wait.
-- The highest offset is served by the primary key of millpond.log.
create function millpond.append(
    given_now bigint, a_queue integer, a_partition integer,
    ids uuid[], checksums integer[], bodies bytea[], kinds text[], keys text[], content_types text[],
    headers text[], attempts_max bigint[], retry_at bigint[], retry_in bigint[],
    stat_kinds text[], stat_counts integer[]
) returns bigint language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off as $$
declare
    base bigint;
    published bigint;
    the_time bigint;
begin
    perform pg_advisory_xact_lock(hashtext('millpond.append'), a_partition);
    select l.log_offset + 1, l.published_at into base, published
    from millpond.log l where l.partition = a_partition order by l.log_offset desc limit 1;
    base := coalesce(base, 0);
    the_time := millpond.time_of(given_now);
    -- Within a partition the time of publishing never goes back.
    published := greatest(published, the_time);
    insert into millpond.log (partition, log_offset, published_at, message_id, checksum, body, kind, key,
                              content_type, headers, attempts_max, retry_until)
    select a_partition, base + row.place - 1, published, row.id, row.checksum, row.body, row.kind, row.key,
           row.content_type, row.headers, row.attempts_max, coalesce(row.retry_at, the_time + row.retry_in)
    from unnest(ids, checksums, bodies, kinds, keys, content_types, headers, attempts_max, retry_at, retry_in)
         with ordinality as row (id, checksum, body, kind, key, content_type, headers, attempts_max,
                                 retry_at, retry_in, place);
    insert into millpond.stat_delta (queue_id, kind, minute, sent)
    select a_queue, s.kind, the_time / 60000000, s.sent from unnest(stat_kinds, stat_counts) as s (kind, sent);
    return base;
end
$$;

-- Writes messages to the outbox: sent in a transaction, or to be due later. Answers the ids that were new; a send
-- that is repeated with the same id, because its answer was lost, is one message.
-- What is there is served by the unique (message_id, subscription_id).
create function millpond.outbox_put(
    given_now bigint, a_queue integer,
    ids uuid[], checksums integer[], bodies bytea[], kinds text[], keys text[], content_types text[],
    headers text[], attempts_max bigint[], retry_at bigint[], retry_in bigint[],
    classes smallint[], reasons text[], due_at bigint[], due_in bigint[]
) returns setof uuid language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off as $$
declare
    the_time bigint := millpond.time_of(given_now);
begin
    return query
    with added as (
        insert into millpond.outbox (message_id, queue_id, class, lane, reason, ready_at, created_at, sent_at,
                                     attempt, releases, suspect, checksum, body, kind, key, content_type, headers,
                                     attempts_max, retry_until)
        select row.id, a_queue, row.class, 0, row.reason,
               greatest(coalesce(row.due_at, the_time + row.due_in), the_time), the_time, the_time,
               0, 0, 0, row.checksum, row.body, row.kind, row.key, row.content_type, row.headers,
               row.attempts_max, coalesce(row.retry_at, the_time + row.retry_in)
        from unnest(ids, checksums, bodies, kinds, keys, content_types, headers, attempts_max, retry_at, retry_in,
                    classes, reasons, due_at, due_in)
             with ordinality as row (id, checksum, body, kind, key, content_type, headers, attempts_max, retry_at,
                                     retry_in, class, reason, due_at, due_in, place)
        order by row.place
        on conflict do nothing
        returning message_id, outbox.kind
    ), counted as (
        insert into millpond.stat_delta (queue_id, kind, minute, sent)
        select a_queue, coalesce(a.kind, ''), the_time / 60000000, count(*) from added a group by 2
    )
    select a.message_id from added a;
end
$$;

-- Holds dedup keys, in the order given, and answers who holds each, and whether it does since now: a call that is repeated
-- under the same ids finds itself. A key that another transaction holds is waited for, so this comes before the append
-- lock and has a limit of its own (R16), which ends with the function: the rest of the transaction may be a user's.
-- What is there is served by the primary key of millpond.dedup.
create function millpond.dedup_hold(
    given_now bigint, a_queue integer, dedup_keys text[], ids uuid[], checksums integer[], windows bigint[]
) returns table (message_id uuid, checksum integer, is_new boolean) language plpgsql
set lock_timeout = '5s' set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
    the_time bigint := millpond.time_of(given_now);
    was_free boolean;
begin
    for i in 1..cardinality(ids) loop
        insert into millpond.dedup as d (queue_id, dedup_key, message_id, checksum, expires_at)
        values (a_queue, dedup_keys[i], ids[i], checksums[i], the_time + windows[i])
        on conflict (queue_id, dedup_key) do update
        set message_id = excluded.message_id, checksum = excluded.checksum, expires_at = excluded.expires_at
        where d.expires_at <= the_time;
        was_free := found;
        return query select d.message_id, d.checksum, was_free from millpond.dedup d
                     where d.queue_id = a_queue and d.dedup_key = dedup_keys[i];
    end loop;
end
$$;
