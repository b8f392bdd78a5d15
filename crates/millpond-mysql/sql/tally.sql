-- name: tally_minutes
-- Walks the counters by the minute, at most a day of them for each queue and kind, and what was added since upkeep last
-- summed it. The kind of a queue's own name is stored empty.
select s.minute, sum(s.sent), sum(s.leased), sum(s.done), sum(s.retried),
       sum(s.dead), sum(s.recovered), sum(s.run)
from (
    select queue_id, kind, minute, sent, leased, done, retried, dead, recovered, run from millpond_stat
    union all
    select queue_id, kind, minute, sent, leased, done, retried, dead, recovered, run
    from millpond_stat_delta
) s
join millpond_queue q on q.id = s.queue_id
where ($1 is null or q.name = $1) and s.minute >= greatest($3, 1) and s.minute < $4
      and ($2 is null or s.kind = $2 or (s.kind = '' and q.name = $2))
group by s.minute;

-- name: tally_quarters
-- What is older than a day is by the quarter, what is younger by the minute still.
-- Walks the tables of counters, 90 days of quarters for each queue and kind.
select s.quarter, sum(s.sent), sum(s.leased), sum(s.done), sum(s.retried),
       sum(s.dead), sum(s.recovered), sum(s.run)
from (
    select queue_id, kind, quarter, sent, leased, done, retried, dead, recovered, run
    from millpond_stat_quarter where quarter >= $3 and quarter < $4
    union all
    select queue_id, kind, minute div 15, sent, leased, done, retried, dead, recovered, run
    from millpond_stat where minute >= greatest($3 * 15, 1) and minute < $4 * 15
    union all
    select queue_id, kind, minute div 15, sent, leased, done, retried, dead, recovered, run
    from millpond_stat_delta where minute >= $3 * 15 and minute < $4 * 15
) s
join millpond_queue q on q.id = s.queue_id
where ($1 is null or q.name = $1)
      and ($2 is null or s.kind = $2 or (s.kind = '' and q.name = $2))
group by s.quarter;

-- name: run_times
-- The newest finished claims. Served by history_finished, which is its order.
select queue_id, runs from millpond_history order by finished_at desc limit $1;
