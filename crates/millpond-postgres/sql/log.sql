-- name: log_end
-- The offset after the highest one of a partition. Served by the primary key.
select coalesce((select l.log_offset + 1 from millpond.log l where l.partition = $1
                 order by l.log_offset desc limit 1), 0);

-- name: log_read_range
-- Without bodies: what a reclaim must know. Served by the primary key.
select 0, l.partition, l.published_at, l.log_offset, l.log_offset, l.message_id, l.attempt, l.releases, l.suspect,
       coalesce(l.sent_at, l.published_at), l.attempts_max, l.retry_until, l.checksum, l.kind, l.key,
       l.content_type, l.headers, ''::bytea
from millpond.log l
where l.partition = $1 and l.log_offset between $2 and $3
order by l.log_offset;

-- name: log_append_lock
-- Waits for whoever appends to the partition. A statement of its own: what is read after it is read after the lock (R1).
-- Reads no table.
select pg_advisory_xact_lock(hashtext('millpond.append'), $1)::text;

-- name: log_has
-- Whether a message is among the newest of a partition. Served by the primary key.
select exists (select 1 from millpond.log l where l.partition = $1 and l.log_offset >= $2 and l.message_id = $3);

-- name: log_published_after
-- A search by time; each step is served by the primary key.
select millpond.published_after($1, $2, $3, $4);

-- name: log_delete
-- By range, so that nothing searches through what was deleted before. Served by the primary key.
delete from millpond.log where partition = $1 and log_offset >= $2 and log_offset < $3;
