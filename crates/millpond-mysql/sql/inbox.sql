-- name: inbox_add
-- Waits for another transaction that has the same message's row. What is there is served by the primary key.
insert ignore into millpond_inbox (subscription_id, message_id, committed_at)
select $1, message_id, $now from millpond_log where `partition` = $2 and log_offset = $3;

-- name: inbox_known
-- Which of these messages have a committed effect. Served by the primary key.
select message_id from millpond_inbox where subscription_id = $1 and message_id in ($2);

-- name: inbox_of_offsets
-- The same by their places in the log. Served by the primary keys.
select l.log_offset from millpond_log l
join millpond_inbox n on n.subscription_id = $1 and n.message_id = l.message_id
where l.`partition` = $2 and l.log_offset in ($3);

-- name: inbox_of_offset
-- The row that this transaction wrote, if it is still the same. Served by the primary keys.
select 1 from millpond_inbox
where subscription_id = $1
      and message_id = (select l.message_id from millpond_log l where l.`partition` = $2 and l.log_offset = $3);
