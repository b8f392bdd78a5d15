-- name: inbox_add
-- Waits for nobody: the writer is alone. What is there is served by the primary key.
insert into millpond_inbox (subscription_id, message_id, committed_at) values (?1, ?2, ?3)
on conflict do nothing;

-- name: inbox_has
-- Served by the primary key.
select exists (select 1 from millpond_inbox where subscription_id = ?1 and message_id = ?2);

-- name: dedup_find
-- Served by the primary key.
select message_id, checksum from millpond_dedup where queue_id = ?1 and dedup_key = ?2 and expires_at > ?3;

-- name: dedup_hold
-- What is there is served by the primary key.
insert into millpond_dedup (queue_id, dedup_key, message_id, checksum, expires_at) values (?1, ?2, ?3, ?4, ?5)
on conflict (queue_id, dedup_key) do update
set message_id = excluded.message_id, checksum = excluded.checksum, expires_at = excluded.expires_at;
