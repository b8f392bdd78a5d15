-- name: schema_server
-- What must be known of a server before anything else, and which of its processes serves this connection.
-- Reads the list of backends.
select pg_is_in_recovery(), current_setting('server_version_num')::integer, pg_backend_pid(),
       current_setting('transaction_read_only')::boolean, current_setting('server_encoding'),
       coalesce((select (extract(epoch from a.backend_start) * 1000000)::bigint from pg_stat_activity a
                 where a.pid = pg_backend_pid()), 0);

-- name: backend_end
-- Ends a process of the server whose connection was lost; nothing once it is gone. Its beginning is compared too, because
-- numbers of processes come again. Reads the list of backends.
select count(pg_terminate_backend(a.pid)) from pg_stat_activity a
where a.pid = $1 and (extract(epoch from a.backend_start) * 1000000)::bigint = $2;

-- name: schema_exists
-- Reads the catalogue, which needs no right on the schema.
select exists (select 1 from pg_namespace n where n.nspname = $1),
       exists (select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace
               where n.nspname = $1 and c.relname = 'migration'),
       exists (select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace
               where n.nspname = $1 and c.relname = 'queue'),
       has_database_privilege(current_database(), 'create'),
       coalesce((select has_schema_privilege(n.oid, 'usage') from pg_namespace n where n.nspname = $1), true);

-- name: schema_applied
-- Reads a handful of rows.
select name, checksum, applied_at from millpond.migration order by number;

-- name: schema_lock
-- Held to the end of the transaction, so that two nodes do not migrate at once. Reads no table.
select pg_advisory_xact_lock(hashtext('millpond.migration'), 0)::text;

-- name: schema_record
insert into millpond.migration (number, name, checksum, applied_at) values ($1, $2, $3, millpond.time_of(null));
