-- name: tally_minutes
-- Walks the counters by the minute: at most a day of them for each queue and kind; those of one queue are served by the
-- primary key. The kind of a queue's own name is stored empty.
select s.minute, sum(s.sent), sum(s.leased), sum(s.done), sum(s.retried), sum(s.dead), sum(s.recovered), sum(s.run)
from millpond_stat s
join millpond_queue q on q.id = s.queue_id
where (:queue is null or q.name = :queue) and s.minute >= max(:from, 1) and s.minute < :to
      and (:kind is null or s.kind = :kind or (s.kind = '' and q.name = :kind))
group by s.minute;

-- name: tally_quarters
-- What is older than a day is by the quarter, what is younger by the minute still.
-- Walks both tables of counters, 90 days of quarters for each queue and kind; those of one queue are served by the
-- primary keys.
select s.quarter, sum(s.sent), sum(s.leased), sum(s.done), sum(s.retried), sum(s.dead), sum(s.recovered), sum(s.run)
from (
    select queue_id, kind, quarter, sent, leased, done, retried, dead, recovered, run
    from millpond_stat_quarter where quarter >= :from and quarter < :to
    union all
    select queue_id, kind, minute / 15, sent, leased, done, retried, dead, recovered, run
    from millpond_stat where minute >= max(:from * 15, 1) and minute < :to * 15
) s
join millpond_queue q on q.id = s.queue_id
where (:queue is null or q.name = :queue)
      and (:kind is null or s.kind = :kind or (s.kind = '' and q.name = :kind))
group by s.quarter;

-- name: run_times
-- The newest finished claims. Served by millpond_history_finished, which is its order.
select queue_id, runs from millpond_history order by finished_at desc limit :claims_max;
