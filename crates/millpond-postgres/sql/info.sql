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
-- Tables with their rows: counted up to a limit, beyond it as the server estimates them. Each count is served by the
-- smallest index of its table and ends at the limit. Those of the log are what its partitions span.
select c.name, case when c.counted <= 100000 then c.counted
                    else greatest(c.counted, (select r.reltuples::bigint from pg_class r
                                              join pg_namespace n on n.oid = r.relnamespace
                                              where n.nspname = $1 and r.relname = c.name)) end
from (
    select 'audit', (select count(*) from (select 1 from millpond.audit limit 100001) t)
    union all select 'claim', (select count(*) from (select 1 from millpond.claim limit 100001) t)
    union all select 'dead_letter', (select count(*) from (select 1 from millpond.dead_letter limit 100001) t)
    union all select 'dedup', (select count(*) from (select 1 from millpond.dedup limit 100001) t)
    union all select 'event', (select count(*) from (select 1 from millpond.event limit 100001) t)
    union all select 'history', (select count(*) from (select 1 from millpond.history limit 100001) t)
    union all select 'inbox', (select count(*) from (select 1 from millpond.inbox limit 100001) t)
    union all select 'outbox', (select count(*) from (select 1 from millpond.outbox limit 100001) t)
    union all select 'queue', (select count(*) from millpond.queue)
    union all select 'stat_quarter', (select count(*) from (select 1 from millpond.stat_quarter limit 100001) t)
    union all select 'worker', (select count(*) from millpond.worker)
) c (name, counted)
union all
select 'log', coalesce(sum((select l.log_offset from millpond.log l where l.partition = p.id
                            order by l.log_offset desc limit 1) - p.first_offset + 1), 0)::bigint
from millpond.log_partition p
union all
-- What upkeep has not summed yet counts as it is.
select 'stat', (select count(*) from (select 1 from millpond.stat limit 100001) t)
               + (select count(*) from (select 1 from millpond.stat_delta limit 100001) t)
order by 1;
