-- name: info_server
-- Reads the settings of the server and the sizes in its catalogue.
select version(), database(), current_user(), @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog,
       @@innodb_doublewrite, @@max_connections, @@max_allowed_packet,
       (select coalesce(max(name), '') from millpond_migration where applied_at is not null),
       (select coalesce(sum(data_length + index_length), 0) from information_schema.tables where table_schema = database());

-- name: info_oldest
-- The oldest open transaction: it keeps old versions of rows from being cleaned up. Reads the list of transactions, which
-- asks for the right PROCESS.
select trx_mysql_thread_id, timestampdiff(second, trx_started, now()), trx_state
from information_schema.innodb_trx
where trx_mysql_thread_id <> connection_id()
order by trx_started limit 1;

-- name: info_tables
-- Tables with their rows: counted up to a limit, beyond it as the server estimates them. Each count is served by the
-- smallest index of its table and ends at the limit. Those of the log are what its partitions span; counters that upkeep
-- has not summed yet count as they are.
select c.name, if(c.counted <= 100000, c.counted,
                  greatest(c.counted, (select coalesce(t.table_rows, 0) from information_schema.tables t
                                       where t.table_schema = database() and t.table_name = concat($1, c.name))))
from (
    select 'audit' as name, (select count(*) from (select 1 from millpond_audit limit 100001) t) as counted
    union all select 'claim', (select count(*) from (select 1 from millpond_claim limit 100001) t)
    union all select 'dead_letter', (select count(*) from (select 1 from millpond_dead_letter limit 100001) t)
    union all select 'dedup', (select count(*) from (select 1 from millpond_dedup limit 100001) t)
    union all select 'event', (select count(*) from (select 1 from millpond_event limit 100001) t)
    union all select 'history', (select count(*) from (select 1 from millpond_history limit 100001) t)
    union all select 'inbox', (select count(*) from (select 1 from millpond_inbox limit 100001) t)
    union all select 'outbox', (select count(*) from (select 1 from millpond_outbox limit 100001) t)
    union all select 'stat_quarter', (select count(*) from (select 1 from millpond_stat_quarter limit 100001) t)
    union all select 'queue', (select count(*) from millpond_queue)
    union all select 'worker', (select count(*) from millpond_worker)
) c
union all
select 'log', coalesce(sum(greatest(p.next_offset - p.first_offset, 0)), 0) from millpond_log_partition p
union all
select 'stat', (select count(*) from (select 1 from millpond_stat limit 100001) t)
               + (select count(*) from (select 1 from millpond_stat_delta limit 100001) t)
order by 1;
