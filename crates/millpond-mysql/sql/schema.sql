-- name: schema_server
-- What must be known of a server before anything else. Reads no table.
select version(), @@max_allowed_packet, @@global.read_only, connection_id(), database();

-- name: server_uptime
-- For how many seconds the server runs. Reads its counters.
show global status like 'Uptime';

-- name: server_clock
-- Reads no table.
select unix_timestamp();

-- name: server_thread
-- Whether a connection is there still. Reads the list of connections.
select count(*) from information_schema.processlist where id = $1;

-- name: still_ours
-- Fails, with the error of a subselect that has two rows, once a process of a later release has migrated. Whoever writes
-- asks this first in the transaction: a migration waits for all who have read the table. Served by the primary key.
set @ours = (select 1 union all select 1 from millpond_migration where number > :known);

-- name: schema_tables
-- Tables that are ours by their name, with their collation. Reads the catalogue.
select table_name, table_collation, engine from information_schema.tables
where table_schema = database() and left(table_name, char_length($1)) = $1;

-- name: schema_binary
-- Columns of names and keys that are not compared byte by byte. Reads the catalogue.
select table_name, column_name, data_type from information_schema.columns
where table_schema = database() and left(table_name, char_length($1)) = $1 and data_type not in ('binary', 'varbinary')
      and column_name in ('name', 'key', 'kind', 'dedup_key', 'route', 'message_id', 'token', 'worker')
limit 1;

-- name: schema_applied
-- Reads a handful of rows.
select name, checksum, steps, applied_at from millpond_migration order by number;

-- name: schema_lock
-- Held by the connection, because changes of tables commit by themselves. It is let go with the connection. Reads no table.
select get_lock(concat(database(), '.millpond_migration'), 30);

-- name: schema_unlock
-- Reads no table.
select release_lock(concat(database(), '.millpond_migration'));

-- name: schema_begin
-- What was begun before is there. Served by the primary key.
insert ignore into millpond_migration (number, name, checksum, steps) values ($1, $2, $3, 0);

-- name: schema_step
-- Served by the primary key.
update millpond_migration set steps = $2 where number = $1;

-- name: schema_end
-- Served by the primary key.
update millpond_migration set applied_at = $now where number = $1;
