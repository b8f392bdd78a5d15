-- name: inspect_heads
-- As the pulse, for all queues. Three look-ups a part, served by the primary keys.
select queue_id, ready, oldest
from millpond.pulse($1, (select coalesce(array_agg(id), '{}') from millpond.queue), true, 0, false)
where queue_id is not null;

-- name: inspect_leased
-- Live claims; the store counts what their done sets leave. A handful of rows, whatever the backlog.
-- Walks the claims: live ones and markers.
select p.queue_id, c.to_offset - c.from_offset + 1, c.done
from millpond.claim c
join millpond.log_partition p on p.id = c.partition
where c.token is not null;

-- name: inspect_outbox
-- How many wait, and how many of them are retrying, as `State::of` has it. Walks outbox_state: no body is read.
select queue_id, count(*), count(*) filter (where reason = 'retry' or (attempt > 0 and reason <> 'snooze'))
from millpond.outbox
group by queue_id;

-- name: inspect_dead
-- Those that were redriven live on under another id. Walks dead_letter_open.
select queue_id, count(*) from millpond.dead_letter where redriven_as is null group by 1;

-- name: inspect_stat
-- Walks the counters: at most a day of minutes for each queue and kind, one row of all that is older, and what was
-- added since upkeep last summed it.
select s.queue_id, sum(s.sent)::bigint, sum(s.done)::bigint
from (select queue_id, sent, done from millpond.stat
      union all select queue_id, sent, done from millpond.stat_delta) s
group by 1;

-- name: inspect_listeners
-- Walks the workers, which are few.
select to_json(queues)::text from millpond.worker where lease_until > $1 and not stopped;

-- name: inspect_workers
-- Walks the workers, which are few.
select id, host, to_json(queues)::text, slots, busy, started_at, seen_at, lease_until, stopped, error, facts, wish
from millpond.worker
order by seen_at desc, id;

-- name: message_in_outbox
-- Served by the unique (message_id, subscription_id).
select queue_id, class, kind, key, headers, content_type, body, attempt, releases, suspect, attempts_max, retry_until,
       sent_at, reason, ready_at, created_at, last_error
from millpond.outbox where message_id = $1
order by seq desc limit 1;

-- name: message_in_dead_letters
-- Served by the unique (message_id, subscription_id). A deadline is not kept.
select queue_id, class, kind, key, headers, content_type, body, attempt, releases, 0::smallint, attempts_max,
       null::bigint, sent_at, reason, died_at, detail, redriven_as
from millpond.dead_letter where message_id = $1
order by id desc limit 1;

-- name: message_in_log
-- The message itself, once its place is known. Served by the primary key.
select p.queue_id, p.class, l.kind, l.key, l.headers, l.content_type, l.body, coalesce(l.attempt, 0),
       coalesce(l.releases, 0), coalesce(l.suspect, 0::smallint), l.attempts_max, l.retry_until,
       coalesce(l.sent_at, l.published_at)
from millpond.log l
join millpond.log_partition p on p.id = l.partition
where l.partition = $1 and l.log_offset = $2;

-- name: message_returns
-- Rows that came through the outbox. Served by log_message.
select l.partition, l.log_offset, coalesce(l.attempt, 0), coalesce(l.releases, 0), l.published_at, p.lane, s.id, l.reason
from millpond.log l
join millpond.log_partition p on p.id = l.partition
join millpond.subscription s on s.queue_id = p.queue_id and s.name = ''
where l.message_id = $1 and l.via_outbox;

-- name: message_at
-- One row, by its place. Served by the primary key.
select l.partition, l.log_offset, coalesce(l.attempt, 0), coalesce(l.releases, 0), l.published_at, p.lane, s.id, l.reason
from millpond.log l
join millpond.log_partition p on p.id = l.partition
join millpond.subscription s on s.queue_id = p.queue_id and s.name = ''
where l.partition = $1 and l.log_offset = $2;

-- name: message_scan
-- The end of a search by time: a short range of one partition. Served by the primary key.
select log_offset from millpond.log
where partition = $1 and log_offset >= $2 and log_offset < $3 and message_id = $4
limit 1;

-- name: message_claim
-- The only claim that can hold an offset. Served by the primary key.
select from_offset, to_offset, token is not null, worker, expires_at, leased_at, done, runs from millpond.claim
where subscription_id = $1 and partition = $2 and to_offset >= $3
order by to_offset limit 1;

-- name: message_history
-- The only finished claim that can have held an offset. Served by history_range.
select from_offset, to_offset, worker, leased_at, runs from millpond.history
where partition = $1 and to_offset >= $2
order by to_offset limit 1;

-- name: message_events
-- Served by event_message.
select id, message_id, queue_id, kind, reason, attempt, releases, worker, error, at, run, count, name, retry_of
from millpond.event where message_id = $1 order by id;

-- name: dead_letter_before
-- The dead letter that a message is a new life of. Served by dead_letter_redriven.
select message_id from millpond.dead_letter where redriven_as = $1 limit 1;

-- name: main_partitions
-- Where direct sends go: of one queue, or of all. Walks the parts, which are few.
select id, first_offset from millpond.log_partition where lane = 0 and ($1::integer is null or queue_id = $1);
