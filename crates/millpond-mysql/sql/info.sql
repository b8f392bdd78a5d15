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
-- Tables with their rows, as the server estimates them. Reads the catalogue.
select table_name, coalesce(table_rows, 0) from information_schema.tables
where table_schema = database() and left(table_name, char_length($1)) = $1 and table_name <> concat($1, 'migration')
order by table_name;
