-- name: event_page
-- From a place on, newest first. Served by event_at, which is its order.
select id, message_id, queue_id, kind, reason, attempt, releases, worker, error, at, run, count, name, retry_of
from millpond_event
where at <= $1 and (at < $1 or id < $2) and at >= $3
order by at desc, id desc
limit $4;

-- name: event_page_of_queue
-- The same of one queue. Served by event_queue, which is its order.
select id, message_id, queue_id, kind, reason, attempt, releases, worker, error, at, run, count, name, retry_of
from millpond_event
where at <= $1 and (at < $1 or id < $2) and at >= $3 and queue_id = $5
order by at desc, id desc
limit $4;

-- name: event_last
-- How the last delivery of a message ended that was no success. Served by event_message.
select error, worker, run from millpond_event
where message_id = $1 and kind in ('RETRY', 'DLQ', 'RECOVER') order by id desc limit 1;

-- name: enqueue_told
-- Whether a message has a row that tells of its beginning: an event, as after a redrive, or one of the log that came
-- through the outbox. Served by event_message and log_message.
select exists (select 1 from millpond_event where message_id = $1 and kind = 'ENQUEUE')
       or exists (select 1 from millpond_log_returned r
                  join millpond_log_partition p on p.id = r.`partition`
                  where r.message_id = $1 and p.lane = 0);

-- name: run_messages
-- The messages of a claim. Served by the primary key.
select log_offset, message_id, coalesce(attempt, 0), coalesce(releases, 0), kind, `key` from millpond_log
where `partition` = $1 and log_offset between $2 and $3
order by log_offset;

-- name: history_page
-- Finished claims from a place on, the last that ended first. A claim ends after all of its entries.
-- Served by history_finished, which is its order.
select id, finished_at, leased_at, queue_id, `partition`, from_offset, to_offset, worker, runs from millpond_history
where finished_at <= $1 and (finished_at < $1 or id < $2) and finished_at >= $3
order by finished_at desc, id desc
limit $4;

-- name: history_by_number
-- Served by the primary key.
select id, finished_at, leased_at, queue_id, `partition`, from_offset, to_offset, worker, runs from millpond_history
where id = $1;

-- name: history_since
-- Claims that ended lately and began before an instant. Served by history_finished.
select id, finished_at, leased_at, queue_id, `partition`, from_offset, to_offset, worker, runs from millpond_history
where finished_at > $1 and leased_at <= $2;

-- name: log_published_at
-- Served by the primary key.
select published_at from millpond_log where `partition` = $1 and log_offset = $2;
