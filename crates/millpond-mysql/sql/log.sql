-- name: log_append_lock
-- Waits for whoever appends to the partition, and reads where it ended (R1). Served by the primary key.
select next_offset, published_at into @base, @published from millpond_log_partition where id = $1 for update;

-- name: log_append_time
-- A statement of its own, because the lock may have been waited for. Within a partition the time of publishing never goes
-- back. Reads no table.
set @the_time = $now, @published = greatest(@published, $now);

-- name: log_append
-- A deadline is an instant, or so much after the time of before.
insert into millpond_log (`partition`, log_offset, published_at, message_id, checksum, body, kind, `key`, content_type, headers,
                          attempts_max, retry_until)
values {($1, @base + $2, @published, $3, $4, $5, $6, $7, $8, $9, $10, $11)};

-- name: log_append_bare
-- Most messages have a body and nothing else. The server takes each value of a row apart, nulls too.
insert into millpond_log (`partition`, log_offset, published_at, message_id, checksum, body)
values {($1, @base + $2, @published, $3, $4, $5)};

-- name: log_append_end
-- Served by the primary key.
update millpond_log_partition set next_offset = @base + $2, published_at = @published where id = $1;

-- name: log_append_base
-- Reads no table.
select @base;

-- name: log_end_lock
-- Waits for whoever appends to the partition, and answers where it ended. Served by the primary key.
select next_offset from millpond_log_partition where id = $1 for update;

-- name: log_end
-- The offset after the highest one of a partition. Served by the primary key.
select next_offset from millpond_log_partition where id = $1;

-- name: log_read_range
-- Without bodies: what a reclaim must know. Served by the primary key.
select log_offset, message_id, attempt, releases, suspect, coalesce(sent_at, published_at), attempts_max, retry_until,
       checksum, kind, `key`, content_type, headers, ''
from millpond_log
where `partition` = $1 and log_offset between $2 and $3
order by log_offset;

-- name: log_has
-- Whether a message is among the newest of a partition. Served by the primary key.
select exists (select 1 from millpond_log where `partition` = $1 and log_offset >= $2 and message_id = $3);

-- name: log_lengths
-- What a lease may take after the cursor, and how large it is. Served by the primary keys.
select log_offset, octet_length(body), suspect, kind from millpond_log
where `partition` = $2
      and log_offset > coalesce((select max(c.to_offset) from millpond_claim c
                                 where c.subscription_id = $1 and c.`partition` = $2), -1)
order by log_offset
limit $3;

-- name: log_read
-- The messages of a claim. Served by the primary key.
select log_offset, message_id, attempt, releases, suspect, coalesce(sent_at, published_at), attempts_max, retry_until,
       checksum, kind, `key`, content_type, headers, body
from millpond_log
where `partition` = $1 and log_offset between $2 and $3
order by log_offset;

-- name: log_published
-- When a message was published; a step of a search by time. Served by the primary key.
select published_at from millpond_log where `partition` = $1 and log_offset = $2;

-- name: log_delete
-- By range, so that nothing searches through what was deleted before. Served by the primary key.
delete from millpond_log where `partition` = $1 and log_offset >= $2 and log_offset < $3;

-- name: log_returned_delete
-- Served by the primary key.
delete from millpond_log_returned where `partition` = $1 and log_offset >= $2 and log_offset < $3;

-- name: stat_leased
insert into millpond_stat_delta (queue_id, kind, minute, leased) values {($1, $2, $now div 60000000, $3)};
