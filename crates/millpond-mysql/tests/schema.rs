//! `schema.sql` is what all migrations come to, to be read: tables with their columns and indexes.

use millpond_mysql::mysql_async::Conn;
use millpond_mysql::mysql_async::prelude::Queryable;
use millpond_mysql::{MysqlStore, Options};
use millpond_testkit::servers::mariadb::{Mariadb, fresh_prefix};

/// One line for each column, then one for each index; names of tables without their prefix.
const DUMP: &str = "
    select line from (
        select 1 as part, table_name, ordinal_position as place,
               concat(substr(table_name, char_length('{}') + 1), '.', column_name, ' ', column_type,
                      if(is_nullable = 'NO', ' not null', ''), if(extra = '', '', concat(' ', extra))) as line
        from information_schema.columns
        where table_schema = database() and left(table_name, char_length('{}')) = '{}'
        union all
        select 2, table_name, 0,
               concat(substr(table_name, char_length('{}') + 1), ': ', if(min(non_unique) = 0, 'unique ', ''),
                      lower(index_name), ' (', group_concat(column_name order by seq_in_index separator ', '), ')')
        from information_schema.statistics
        where table_schema = database() and left(table_name, char_length('{}')) = '{}'
        group by table_name, index_name
    ) all_of_it
    order by part, binary table_name, place, binary line";

#[tokio::test]
async fn the_committed_schema_is_what_the_migrations_make() {
    let (url, prefix) = (Mariadb::shared().url(), fresh_prefix());
    let store =
        MysqlStore::open(&format!("{url}?prefix={prefix}"), Options::default()).await.expect("it opens");
    let mut conn = Conn::from_url(url).await.expect("it runs");
    let lines: Vec<String> = conn.query(DUMP.replace("{}", &prefix)).await.expect("the catalogue is read");
    let made: String = lines.iter().map(|line| line.clone() + "\n").collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schema.sql");
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(path, &made).expect("the crate's folder is there");
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(written == made, "schema.sql is stale: run this test once with UPDATE_SCHEMA=1");
    drop(store);
}
