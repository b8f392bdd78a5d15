-- name: info_server
-- Reads the settings and sizes of the server, and what its backends and slots hold.
select current_setting('server_version'), current_database(), current_user::text, current_setting('synchronous_commit'),
       current_setting('fsync'), current_setting('full_page_writes'), pg_database_size(current_database()),
       (select coalesce(max(name), '') from millpond.migration), current_setting('max_connections')::integer,
       (select count(*) from pg_stat_activity where datname = current_database()),
       (select count(*) from pg_prepared_xacts), (select count(*) from pg_replication_slots where xmin is not null or catalog_xmin is not null);

-- name: info_oldest
-- The oldest snapshot that keeps dead rows from being cleaned up. Reads the list of backends.
select a.pid, coalesce(a.usename::text, ''), coalesce(a.application_name, ''), coalesce(a.state, ''),
       (extract(epoch from clock_timestamp() - a.xact_start) * 1000)::bigint
from pg_stat_activity a
where a.backend_xmin is not null and a.pid <> pg_backend_pid() and a.xact_start is not null
      and a.backend_type = 'client backend'
order by a.xact_start limit 1;

-- name: info_tables
-- Tables with their rows, as the server estimates them. Reads the catalogue.
select c.relname::text, greatest(c.reltuples, 0)::bigint
from pg_class c
where c.relnamespace = to_regnamespace($1) and c.relkind = 'r' and c.relname <> 'migration'
order by c.relname;
