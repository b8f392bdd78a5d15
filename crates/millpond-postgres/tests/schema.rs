//! `schema.sql` is what all migrations come to, to be read: tables with their columns, indexes and functions.

use millpond_postgres::tokio_postgres::{NoTls, connect};
use millpond_postgres::{Options, PostgresStore};
use millpond_testkit::servers::postgres::{Postgres, fresh_schema};

/// One line for each thing, in an order that no version of the server changes.
const DUMP: &str = "
    select line from (
        select 1, c.relname::text, a.attnum::integer,
               format('%s.%s %s%s%s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
                      case when a.attnotnull then ' not null' else '' end,
                      case when a.attidentity <> '' then ' identity'
                           when d.oid is not null then ' default ' || pg_get_expr(d.adbin, d.adrelid) else '' end)
        from pg_class c
        join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
        where c.relnamespace = $1::text::regnamespace and c.relkind = 'r'
        union all
        select 2, c.relname::text, 0, format('%s with (%s)', c.relname, array_to_string(c.reloptions, ', '))
        from pg_class c
        where c.relnamespace = $1::text::regnamespace and c.relkind = 'r' and c.reloptions is not null
        union all
        select 3, indexname::text, 0, replace(indexdef, schemaname || '.', '') from pg_indexes where schemaname = $1
        union all
        select 4, p.proname::text, 0, format('function %s(%s) returns %s', p.proname, pg_get_function_arguments(p.oid),
                                       pg_get_function_result(p.oid))
        from pg_proc p where p.pronamespace = $1::text::regnamespace
    ) all_of_it (part, name, place, line)
    order by part, name collate \"C\", place, line collate \"C\"";

#[tokio::test]
async fn the_committed_schema_is_what_the_migrations_make() {
    let (url, schema) = (Postgres::shared().url(), fresh_schema());
    let store = PostgresStore::open(&format!("{url}?schema={schema}"), Options::default()).await.unwrap();
    let (client, connection) = connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let rows = client.query(DUMP, &[&schema]).await.unwrap();
    let made: String = rows.iter().map(|row| row.get::<_, String>(0) + "\n").collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schema.sql");
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(committed == made, "schema.sql is stale: run this test once with UPDATE_SCHEMA=1");
    store_is_closed(store).await;
}

async fn store_is_closed(store: PostgresStore) {
    use millpond_core::store::Admin;
    store.close().await;
}
