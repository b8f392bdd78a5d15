-- name: log_top
-- The highest row of a partition, from which the next offset follows. Served by the primary key.
select log_offset, published_at from millpond_log where partition = :partition order by log_offset desc limit 1;

-- name: log_append
insert into millpond_log (partition, log_offset, message_id, attempt, releases, suspect, sent_at, published_at,
                          via_outbox, attempts_max, retry_until, checksum, kind, key, content_type, headers, body)
values (?1, ?2, ?3, 0, 0, 0, ?4, ?5, 0, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13);

-- name: log_append_from_outbox
-- Moves one row; the other half is outbox_delete, in the same transaction.
-- The row of the outbox is served by its primary key.
insert into millpond_log (partition, log_offset, message_id, attempt, releases, suspect, sent_at, published_at,
                          via_outbox, attempts_max, retry_until, checksum, kind, key, content_type, headers, body,
                          reason)
select ?1, ?2, message_id, attempt, releases, suspect, sent_at, ?3,
       1, attempts_max, retry_until, checksum, kind, key, content_type, headers, body,
       case when retry_of is null then reason else 'redrive' end
from millpond_outbox where seq = ?4;

-- name: log_read
-- The next messages after the cursor. The store cuts them at the byte budget. Served by the primary key.
select log_offset, message_id, attempt, releases, suspect, sent_at, attempts_max, retry_until, checksum,
       kind, key, content_type, headers, body
from millpond_log
where partition = ?1 and log_offset > ?2
order by log_offset
limit ?3;

-- name: log_read_range
-- Without bodies: what a reclaim must know. Served by the primary key.
select log_offset, message_id, attempt, releases, suspect, sent_at, attempts_max, retry_until, checksum,
       kind, key, content_type, headers, x''
from millpond_log
where partition = ?1 and log_offset between ?2 and ?3
order by log_offset;

-- name: log_identity
-- What an event or an inbox look-up must know about one message. Served by the primary key.
select message_id, attempt, releases, kind from millpond_log where partition = ?1 and log_offset = ?2;

-- name: log_published_at
-- One step of a search by time. Served by the primary key.
select published_at from millpond_log where partition = ?1 and log_offset = ?2;
