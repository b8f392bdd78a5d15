-- name: info_schema
-- Walks the migrations, which are few.
select coalesce(max(name), '') from millpond_migration;

-- name: info_tables
-- Tables with their rows, up to a limit, and with what their numbers span. Each count is served by the smallest index
-- of its table and ends at the limit; the ends of the numbers by the primary keys. Those of the log are what its
-- partitions span.
select 'audit', (select count(*) from (select 1 from millpond_audit limit 100001)),
       (select max(number) - min(number) + 1 from millpond_audit)
union all
select 'claim', (select count(*) from (select 1 from millpond_claim limit 100001)), null
union all
select 'dead_letter', (select count(*) from (select 1 from millpond_dead_letter limit 100001)),
       (select max(id) from millpond_dead_letter) - (select min(id) from millpond_dead_letter) + 1
union all
select 'dedup', (select count(*) from (select 1 from millpond_dedup limit 100001)), null
union all
select 'event', (select count(*) from (select 1 from millpond_event limit 100001)),
       (select max(id) from millpond_event) - (select min(id) from millpond_event) + 1
union all
select 'history', (select count(*) from (select 1 from millpond_history limit 100001)),
       (select max(id) from millpond_history) - (select min(id) from millpond_history) + 1
union all
select 'inbox', (select count(*) from (select 1 from millpond_inbox limit 100001)), null
union all
select 'log', coalesce(sum((select l.log_offset from millpond_log l where l.partition = p.id
                            order by l.log_offset desc limit 1) - p.first_offset + 1), 0), null
from millpond_log_partition p
union all
select 'outbox', (select count(*) from (select 1 from millpond_outbox limit 100001)),
       (select max(seq) from millpond_outbox) - (select min(seq) from millpond_outbox) + 1
union all
select 'queue', (select count(*) from millpond_queue), null
union all
select 'stat', (select count(*) from (select 1 from millpond_stat limit 100001)), null
union all
select 'stat_quarter', (select count(*) from (select 1 from millpond_stat_quarter limit 100001)), null
union all
select 'worker', (select count(*) from millpond_worker), null;
