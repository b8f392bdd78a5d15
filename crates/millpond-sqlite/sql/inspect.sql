-- name: pulse_heads
-- Parts of the asked queues that have messages beyond the cursor, paused queues left out unless they are asked for.
-- What is cancelled there is not ready; a lease must pass it all the same. A few index look-ups a part, whatever the
-- backlog: the ends of millpond_log and millpond_claim, one row, and the marks of cancelled messages.
select p.queue_id, p.class, p.lane,
       p.head - p.cursor - (select count(*) from millpond_cancel x
                            where x.subscription_id = p.subscription and x.partition = p.id
                                  and x.log_offset > p.cursor) as ready,
       (select l.published_at from millpond_log l where l.partition = p.id and l.log_offset = p.cursor + 1)
from (
    select q.id, q.queue_id, q.class, q.lane, s.id as subscription,
           coalesce((select l.log_offset from millpond_log l where l.partition = q.id
                     order by l.log_offset desc limit 1), -1) as head,
           coalesce((select c.to_offset from millpond_claim c
                     where c.subscription_id = s.id and c.partition = q.id
                     order by c.to_offset desc limit 1), -1) as cursor
    from json_each(:queues) asked
    cross join millpond_log_partition q on q.queue_id = asked.value
    cross join millpond_subscription s on s.queue_id = q.queue_id and s.name = ''
) p
where p.head > p.cursor
      and (:paused or not exists (select 1 from millpond_pause z
                                  where z.queue_id in (0, p.queue_id) and (z.until is null or z.until > :now)));

-- name: inspect_leased
-- Live claims; the store counts what their done sets leave. A handful of rows, whatever the backlog.
-- Walks the claims: live ones and markers.
select p.queue_id, c.from_offset, c.to_offset, c.done
from millpond_claim c
join millpond_log_partition p on p.id = c.partition
where c.token is not null;

-- name: inspect_outbox
-- How many wait, and how many of them are retrying, as `State::of` has it. Walks millpond_outbox_state in its order: no
-- body is read and nothing is sorted.
select queue_id, count(*), sum(reason = 'retry' or (attempt > 0 and reason != 'snooze'))
from millpond_outbox indexed by millpond_outbox_state
group by queue_id;

-- name: inspect_dead
-- Those that were redriven live on under another id. Walks millpond_dead_letter_open.
select queue_id, count(*) from millpond_dead_letter indexed by millpond_dead_letter_open
where redriven_as is null group by 1;

-- name: inspect_stat
-- Walks the counters: at most a day of minutes for each queue and kind, and one row of all that is older.
select queue_id, sum(sent), sum(done) from millpond_stat group by 1;

-- name: inspect_listeners
-- Walks the workers, which are few.
select asked.value, count(*)
from millpond_worker w, json_each(w.queues) asked
where w.lease_until > :now and w.stopped = 0
group by 1;

-- name: inspect_workers
-- Walks the workers, which are few.
select id, host, queues, slots, busy, started_at, seen_at, lease_until, stopped, error, facts, wish
from millpond_worker
order by seen_at desc, id;

-- name: inspect_dead_letters
-- Walks the dead letters and sorts them: a person asked.
select d.message_id, q.name, d.kind, d.key, d.reason, d.detail, d.attempt, d.content_type, d.body, d.sent_at, d.died_at
from millpond_dead_letter d
join millpond_queue q on q.id = d.queue_id
where d.redriven_as is null
      and (:queue is null or q.name = :queue)
      and (:reason is null or d.reason = :reason)
      and (:ids is null or d.message_id in (select unhex(value) from json_each(:ids)))
order by d.died_at desc, d.id desc
limit :rows_max offset :skip;

-- name: inspect_dead_letter_count
-- Walks the dead letters: a person asked.
select count(*)
from millpond_dead_letter d
join millpond_queue q on q.id = d.queue_id
where d.redriven_as is null
      and (:queue is null or q.name = :queue)
      and (:reason is null or d.reason = :reason)
      and (:ids is null or d.message_id in (select unhex(value) from json_each(:ids)));

-- name: message_in_outbox
-- Served by the unique (message_id, subscription_id).
select queue_id, class, kind, key, headers, content_type, body, attempt, releases, suspect, attempts_max, retry_until,
       sent_at, reason, ready_at, created_at, last_error
from millpond_outbox where message_id = ?1
order by seq desc limit 1;

-- name: message_in_dead_letters
-- Served by the unique (message_id, subscription_id). A deadline is not kept.
select queue_id, class, kind, key, headers, content_type, body, attempt, releases, 0, attempts_max,
       null, sent_at, reason, died_at, detail, redriven_as
from millpond_dead_letter where message_id = ?1
order by id desc limit 1;

-- name: message_in_log
-- The message itself, once its place is known. Served by the primary key.
select p.queue_id, p.class, l.kind, l.key, l.headers, l.content_type, l.body, l.attempt, l.releases, l.suspect,
       l.attempts_max, l.retry_until, l.sent_at
from millpond_log l
join millpond_log_partition p on p.id = l.partition
where l.partition = ?1 and l.log_offset = ?2;

-- name: message_returns
-- Rows that came through the outbox. Served by millpond_log_message.
select l.partition, l.log_offset, l.attempt, l.releases, l.published_at, p.lane, s.id,
       case when l.via_outbox = 1 then l.reason end
from millpond_log l
join millpond_log_partition p on p.id = l.partition
join millpond_subscription s on s.queue_id = p.queue_id and s.name = ''
where l.message_id = ?1 and l.via_outbox = 1;

-- name: message_at
-- One row, by its place. Served by the primary key.
select l.partition, l.log_offset, l.attempt, l.releases, l.published_at, p.lane, s.id,
       case when l.via_outbox = 1 then l.reason end
from millpond_log l
join millpond_log_partition p on p.id = l.partition
join millpond_subscription s on s.queue_id = p.queue_id and s.name = ''
where l.partition = ?1 and l.log_offset = ?2;

-- name: message_scan
-- The end of a search by time: a short range of one partition. Served by the primary key.
select log_offset from millpond_log
where partition = ?1 and log_offset >= ?2 and log_offset < ?3 and message_id = ?4
limit 1;

-- name: message_claim
-- The only claim that can hold an offset. Served by the primary key.
select from_offset, token is not null, worker, expires_at, leased_at, done, runs from millpond_claim
where subscription_id = ?1 and partition = ?2 and to_offset >= ?3
order by to_offset limit 1;

-- name: message_history
-- The only finished claim that can have held an offset. Served by millpond_history_range.
select from_offset, worker, leased_at, runs from millpond_history
where partition = ?1 and to_offset >= ?2
order by to_offset limit 1;

-- name: message_events
-- Served by millpond_event_message.
select id, message_id, queue_id, kind, reason, attempt, releases, worker, error, at, run, count, name, retry_of
from millpond_event where message_id = ?1 order by id;

-- name: dead_letter_before
-- The dead letter that a message is a new life of. Served by millpond_dead_letter_redriven.
select message_id from millpond_dead_letter where redriven_as = ?1 limit 1;

-- name: main_partitions
-- Where direct sends go: of one queue, or of all. Walks the parts, which are few.
select id, first_offset from millpond_log_partition
where lane = 0 and (:queue is null or queue_id = :queue);
