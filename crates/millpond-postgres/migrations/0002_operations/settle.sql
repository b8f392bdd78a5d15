-- Settles claims, in the order of their keys (R12), each as a whole or not at all. Answers a row for each claim that
-- was not settled: lost, or to be looked at again because some of it is settled already, or has a committed effect,
-- or is not in the claim, or is cancelled; then with its size, its done set, the offsets that the inbox knows, and
-- those that somebody wanted stopped.
--
-- What ends otherwise than by an acknowledgement ("case") locks its claim exclusively first and then, in a new
-- statement, reads the inbox: an effect either committed before and is seen, or cannot commit any more (R15).
-- A settlement need not be durable: losing one means another delivery.
-- Claims, log rows, inbox rows and marks are served by their primary keys. They are looked up from the cases on, one by
-- one (lateral): a join could begin at the other end, with a plan that was made while the log was small.
create function millpond.settle(
    given_now bigint,
    subscriptions integer[], partitions integer[], to_offsets bigint[], tokens uuid[],
    new_dones bit varying[], new_runs bit varying[], have_cases boolean[],
    case_claims integer[], case_offsets bigint[], case_dead boolean[], case_reasons text[], case_lanes smallint[],
    case_events text[], case_event_reasons text[], case_due_at bigint[], case_due_in bigint[],
    case_attempts integer[], case_releases integer[], case_suspects smallint[], case_errors text[],
    case_details text[], case_classes text[], case_fingerprints text[], case_runs bigint[], case_names text[],
    stat_claims integer[], stat_kinds text[], stat_done integer[], stat_retried integer[], stat_dead integer[],
    stat_recovered integer[], stat_run bigint[]
) returns table (
    place integer, lost boolean, size integer, done bit varying, known bigint[],
    cancelled bigint[], cancel_actors text[], cancel_reasons text[]
)
language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
    the_time bigint := millpond.time_of(given_now);
    held record;
    home record;
    home_of integer;
    whole bit varying;
    ran bit varying;
    above boolean;
    applied integer[] := '{}';
    all_of_it boolean;
begin
    perform set_config('synchronous_commit', 'off', true);
    for i in 1..cardinality(tokens) loop
        -- Nearly always a claim ends at once, with acknowledgements alone: then it need not be read before.
        all_of_it := not have_cases[i] and position(B'0' in new_dones[i]) = 0;
        if all_of_it then
            above := exists (
                select 1 from millpond.claim c
                where c.subscription_id = subscriptions[i] and c.partition = partitions[i]
                      and c.to_offset > to_offsets[i]
            );
            -- The highest claim is the cursor: it stays, as a marker (R7).
            if above then
                delete from millpond.claim c
                where c.subscription_id = subscriptions[i] and c.partition = partitions[i]
                      and c.to_offset = to_offsets[i] and c.token = tokens[i] and c.done is null
                      and c.to_offset - c.from_offset + 1 = length(new_dones[i])
                returning c.from_offset, c.leased_at, c.worker into held;
            else
                update millpond.claim c set token = null, expires_at = null, in_hand = null
                where c.subscription_id = subscriptions[i] and c.partition = partitions[i]
                      and c.to_offset = to_offsets[i] and c.token = tokens[i] and c.done is null
                      and c.to_offset - c.from_offset + 1 = length(new_dones[i])
                returning c.from_offset, c.leased_at, c.worker into held;
            end if;
            if found then
                if home_of is distinct from partitions[i] then
                    select p.queue_id, p.class, q.history into home
                    from millpond.log_partition p join millpond.queue q on q.id = p.queue_id where p.id = partitions[i];
                    home_of := partitions[i];
                end if;
                applied := applied || array[i, home.queue_id];
                if home.history then
                    insert into millpond.history (queue_id, partition, from_offset, to_offset, worker, leased_at,
                                                  finished_at, runs)
                    values (home.queue_id, partitions[i], held.from_offset, to_offsets[i], held.worker, held.leased_at,
                            the_time, new_runs[i]);
                end if;
                continue;
            end if;
        end if;
        if have_cases[i] then
            perform 1 from millpond.claim c
            where c.subscription_id = subscriptions[i] and c.partition = partitions[i] and c.to_offset = to_offsets[i]
            for update;
            -- That may have been long: what is due is counted from here.
            the_time := millpond.time_of(given_now);
        end if;
        select c.from_offset, c.leased_at, c.worker, c.done, c.runs,
               (c.to_offset - c.from_offset + 1)::integer as size into held
        from millpond.claim c
        where c.subscription_id = subscriptions[i] and c.partition = partitions[i] and c.to_offset = to_offsets[i]
              and c.token = tokens[i]
        for no key update;
        if not found then
            place := i; lost := true; size := null; done := null; known := null; cancelled := null;
            return next;
            continue;
        end if;
        known := null;
        cancelled := null;
        if have_cases[i] then
            -- A mark that was seen before has made its case a cancelled one.
            select array_agg(x.log_offset), array_agg(x.actor), array_agg(x.reason)
            into cancelled, cancel_actors, cancel_reasons
            from unnest(case_claims, case_offsets, case_dead, case_reasons) as k (claim, log_offset, dead, reason)
            cross join lateral (select x.* from millpond.cancel x
                                where x.subscription_id = subscriptions[i] and x.partition = partitions[i]
                                      and x.log_offset = k.log_offset offset 0) x
            where k.claim = i and not (k.dead and k.reason = 'cancelled');
            select array_agg(l.log_offset) into known
            from unnest(case_claims, case_offsets) as k (claim, log_offset)
            cross join lateral (select l.log_offset, l.message_id from millpond.log l
                                where l.partition = partitions[i] and l.log_offset = k.log_offset offset 0) l
            cross join lateral (select 1 from millpond.inbox n
                                where n.subscription_id = subscriptions[i] and n.message_id = l.message_id offset 0) n
            where k.claim = i;
        end if;
        whole := new_dones[i];
        ran := new_runs[i];
        if length(whole) < held.size then
            whole := pg_catalog."bit"(whole, held.size, true);
            ran := pg_catalog."bit"(ran, held.size * 40, true);
        end if;
        if known is not null or cancelled is not null or length(whole) > held.size
           or held.done is not null and position(B'1' in (held.done & whole)) > 0 then
            place := i; lost := false; size := held.size; done := held.done;
            return next;
            continue;
        end if;
        if home_of is distinct from partitions[i] then
            select p.queue_id, p.class, q.history into home
            from millpond.log_partition p join millpond.queue q on q.id = p.queue_id where p.id = partitions[i];
            home_of := partitions[i];
        end if;
        applied := applied || array[i, home.queue_id];
        if have_cases[i] then
            insert into millpond.outbox (message_id, subscription_id, queue_id, class, lane, reason, ready_at, created_at,
                                         sent_at, attempt, releases, suspect, attempts_max, retry_until, checksum,
                                         kind, key, content_type, headers, last_error, body)
            -- Of a message that was sent twice under one id, because its answer was lost, one copy is enough.
            select l.message_id, subscriptions[i], home.queue_id, home.class, k.lane, k.reason,
                   greatest(coalesce(k.due_at, the_time + k.due_in), the_time), the_time, coalesce(l.sent_at, l.published_at),
                   k.attempt, k.releases, k.suspect, l.attempts_max, l.retry_until, l.checksum,
                   l.kind, l.key, l.content_type, l.headers, k.error, l.body
            from unnest(case_claims, case_offsets, case_dead, case_reasons, case_lanes, case_due_at, case_due_in,
                        case_attempts, case_releases, case_suspects, case_errors)
                 as k (claim, log_offset, dead, reason, lane, due_at, due_in, attempt, releases, suspect, error)
            cross join lateral (select l.* from millpond.log l
                                where l.partition = partitions[i] and l.log_offset = k.log_offset offset 0) l
            where k.claim = i and not k.dead
            order by l.log_offset
            on conflict do nothing;
            insert into millpond.dead_letter (message_id, subscription_id, queue_id, class, reason, detail, died_at,
                                              sent_at, attempt, releases, attempts_max, error_class, fingerprint,
                                              worker, retry_of, checksum, kind, key, content_type, headers, body, hook)
            -- The dead letter that it is a new life of is served by dead_letter_redriven, the queue by its primary key.
            select l.message_id, subscriptions[i], home.queue_id, home.class, k.reason, k.detail, the_time,
                   coalesce(l.sent_at, l.published_at), coalesce(l.attempt, 0) + 1, coalesce(l.releases, 0),
                   l.attempts_max, k.error_class, k.fingerprint, held.worker,
                   (select r.message_id from millpond.dead_letter r where r.redriven_as = l.message_id limit 1),
                   l.checksum, l.kind, l.key, l.content_type, l.headers, l.body,
                   coalesce((select case when q.hooked then 'pending' else 'none' end from millpond.queue q where q.id = home.queue_id), 'none')
            from unnest(case_claims, case_offsets, case_dead, case_reasons, case_details, case_classes, case_fingerprints)
                 as k (claim, log_offset, dead, reason, detail, error_class, fingerprint)
            cross join lateral (select l.* from millpond.log l
                                where l.partition = partitions[i] and l.log_offset = k.log_offset offset 0) l
            where k.claim = i and k.dead
            on conflict do nothing;
            insert into millpond.event (message_id, queue_id, kind, reason, attempt, releases, worker, error, at, run, name)
            select l.message_id, home.queue_id, k.event, k.reason, coalesce(l.attempt, 0) + 1,
                   coalesce(l.releases, 0), held.worker, k.error, the_time, k.run, k.name
            from unnest(case_claims, case_offsets, case_events, case_event_reasons, case_errors, case_runs, case_names)
                 as k (claim, log_offset, event, reason, error, run, name)
            cross join lateral (select l.* from millpond.log l
                                where l.partition = partitions[i] and l.log_offset = k.log_offset offset 0) l
            where k.claim = i
            order by l.log_offset;
            delete from millpond.cancel x
            using unnest(case_claims, case_offsets) as k (claim, log_offset)
            where k.claim = i and x.subscription_id = subscriptions[i] and x.partition = partitions[i]
                  and x.log_offset = k.log_offset;
        end if;
        if held.done is not null then
            whole := held.done | whole;
            ran := held.runs | ran;
        end if;
        if position(B'0' in whole) > 0 then
            update millpond.claim c set done = whole, runs = ran
            where c.subscription_id = subscriptions[i] and c.partition = partitions[i] and c.to_offset = to_offsets[i];
            continue;
        end if;
        select exists (
            select 1 from millpond.claim c
            where c.subscription_id = subscriptions[i] and c.partition = partitions[i] and c.to_offset > to_offsets[i]
        ) into above;
        -- The highest claim is the cursor: it stays, as a marker (R7).
        if above then
            delete from millpond.claim c
            where c.subscription_id = subscriptions[i] and c.partition = partitions[i] and c.to_offset = to_offsets[i];
        else
            update millpond.claim c set token = null, expires_at = null, in_hand = null, done = null, runs = null
            where c.subscription_id = subscriptions[i] and c.partition = partitions[i] and c.to_offset = to_offsets[i];
        end if;
        if home.history then
            insert into millpond.history (queue_id, partition, from_offset, to_offset, worker, leased_at, finished_at, runs)
            values (home.queue_id, partitions[i], held.from_offset, to_offsets[i], held.worker, held.leased_at,
                    the_time, ran);
        end if;
    end loop;
    if cardinality(applied) = 2 and cardinality(stat_claims) = 1 then
        insert into millpond.stat_delta (queue_id, kind, minute, done, retried, dead, recovered, run)
        values (applied[2], stat_kinds[1], the_time / 60000000, stat_done[1], stat_retried[1], stat_dead[1],
                stat_recovered[1], stat_run[1]);
        return;
    end if;
    insert into millpond.stat_delta (queue_id, kind, minute, done, retried, dead, recovered, run)
    select applied[2 * a.place], s.kind, the_time / 60000000, sum(s.done), sum(s.retried), sum(s.dead),
           sum(s.recovered), sum(s.run)
    from generate_series(1, cardinality(applied) / 2) as a (place)
    join unnest(stat_claims, stat_kinds, stat_done, stat_retried, stat_dead, stat_recovered, stat_run)
         as s (claim, kind, done, retried, dead, recovered, run) on s.claim = applied[2 * a.place - 1]
    group by 1, 2;
end
$$;
