-- name: outbox_known
-- Which of these messages wait already: a send that is repeated with the same id, because its answer was lost, is one
-- message. Served by outbox_message.
select message_id from millpond_outbox where message_id in ($1) and subscription_id = 0;

-- name: outbox_put_time
-- Once for all rows, because every value of a row is parsed. Reads no table.
set @the_time = $now;

-- name: outbox_put
-- Sent in a transaction, or to be due later. What is there is served by outbox_message.
insert into millpond_outbox (message_id, queue_id, class, lane, reason, ready_at, created_at, sent_at, attempt, releases,
                             suspect, checksum, body, kind, `key`, content_type, headers, attempts_max, retry_until)
values {($1, $2, $3, 0, $4, $5, @the_time, @the_time, 0, 0, 0, $6, $7, $8, $9, $10, $11, $12, $13)}
on duplicate key update message_id = values(message_id);

-- name: outbox_due
-- Rows that another relay holds are passed over: order does not come from this (unordered queues only).
-- Served by outbox_ready, which is its order.
select seq, queue_id, class, lane from millpond_outbox
where ready_at <= (select $now)
order by ready_at, seq
limit $1
for update skip locked;

-- name: outbox_to_log
-- Behind the lock of the partition. The rows are served by the primary key.
insert into millpond_log (`partition`, log_offset, published_at, sent_at, message_id, attempt, releases, suspect, via_outbox,
                          attempts_max, retry_until, checksum, kind, `key`, content_type, headers, body, reason)
select $1, @base - 1 + row_number() over (order by ready_at, seq), @published, sent_at, message_id, attempt, releases, suspect,
       1, attempts_max, retry_until, checksum, kind, `key`, content_type, headers, body,
       if(retry_of is null, reason, 'redrive')
from millpond_outbox where seq in ($2);

-- name: outbox_to_returned
-- The same rows once more, by their ids. Served by the primary key.
insert into millpond_log_returned (`partition`, log_offset, sent_at, message_id)
select `partition`, log_offset, sent_at, message_id from millpond_log where `partition` = $1 and log_offset >= @base;

-- name: outbox_moved
-- Served by the primary key.
delete from millpond_outbox where seq in ($1);

-- name: outbox_next_due
-- Served by outbox_ready, its first entry.
select min(ready_at) from millpond_outbox;

-- name: stat_sent
insert into millpond_stat_delta (queue_id, kind, minute, sent) values {($1, $2, $now div 60000000, $3)};

-- name: dedup_hold_begin
-- Reads no table.
set @held = '';

-- name: dedup_hold
-- Holds dedup keys, in their order. A key that another transaction holds is waited for, so this comes before the append
-- lock (R16). The end of the window is written last: what is compared before is the stored one. Messages whose key was
-- held before, perhaps by themselves, are noted in `@held`.
-- What is there is served by the primary key.
insert into millpond_dedup (queue_id, dedup_key, message_id, checksum, expires_at)
values {($1, $2, $3, $4, $now + $5)}
on duplicate key update message_id = if(expires_at <= $now, values(message_id), message_id),
                        checksum = if(expires_at <= $now, values(checksum),
                                      if((@held := concat(@held, hex(values(message_id)))) is null, checksum, checksum)),
                        expires_at = if(expires_at <= $now, values(expires_at), expires_at);

-- name: dedup_holders
-- Served by the primary key.
select dedup_key, message_id, checksum, coalesce(locate(hex(message_id), @held) % 32 = 1, 0)
from millpond_dedup where queue_id = $1 and dedup_key in ($2);

-- name: partition_find
-- Served by log_partition_part.
select id from millpond_log_partition
where queue_id = $1 and class = $2 and lane = $3 and route = '' and generation = 0 and ordinal = 0;

-- name: partition_add
-- Another transaction may make it at the same moment. What is there is served by log_partition_part.
insert ignore into millpond_log_partition (queue_id, class, lane, subscription_id)
select $1, $2, $3, if($3 = 0, 0, s.id) from millpond_subscription s where s.queue_id = $1 and s.name = '';

-- name: partition_add_lock
-- What a lease locks. Served by log_partition_part.
insert ignore into millpond_claim_lock (subscription_id, `partition`)
select s.id, p.id from millpond_log_partition p
join millpond_subscription s on s.queue_id = p.queue_id and s.name = ''
where p.queue_id = $1 and p.class = $2 and p.lane = $3;

-- name: outbox_due_homes
-- Where due rows go, before any is locked. Served by outbox_ready, which is its order.
select seq, queue_id, class, lane from millpond_outbox
where ready_at <= (select $now)
order by ready_at, seq
limit $1;
