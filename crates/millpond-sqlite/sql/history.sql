-- name: history_add
insert into millpond_history (queue_id, partition, from_offset, to_offset, worker, leased_at, finished_at, runs)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8);

-- name: event_add
-- run: how long the handler ran, in microseconds. name: of the work; null is the queue's own.
insert into millpond_event (message_id, queue_id, kind, reason, attempt, releases, worker, error, at, run, name)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11);

-- name: event_last
-- How the last delivery of a message ended that was no success. Served by millpond_event_message.
select error, worker, run from millpond_event
where message_id = ?1 and kind in ('RETRY', 'DLQ', 'RECOVER') order by id desc limit 1;

-- name: stat_add
-- What is there is served by the primary key.
insert into millpond_stat (queue_id, kind, minute, sent, leased, done, retried, dead, recovered, run)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
on conflict (queue_id, kind, minute) do update
set sent = sent + excluded.sent, leased = leased + excluded.leased, done = done + excluded.done,
    retried = retried + excluded.retried, dead = dead + excluded.dead, recovered = recovered + excluded.recovered,
    run = run + excluded.run;

-- name: stat_add_quarter
-- What is there is served by the primary key.
insert into millpond_stat_quarter (queue_id, kind, quarter, sent, leased, done, retried, dead, recovered, run)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
on conflict (queue_id, kind, quarter) do update
set sent = sent + excluded.sent, leased = leased + excluded.leased, done = done + excluded.done,
    retried = retried + excluded.retried, dead = dead + excluded.dead, recovered = recovered + excluded.recovered,
    run = run + excluded.run;
