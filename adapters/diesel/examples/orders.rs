//! An order and its mails, in one transaction of diesel or diesel-async: `cargo run --example diesel -- postgres://… commit`.

use std::error::Error;

use diesel::Connection as _;
use diesel::connection::SimpleConnection as _;
use diesel_async::{AsyncConnection, AsyncMysqlConnection, AsyncPgConnection, RunQueryDsl};
use millpond::{ItemOptions, Pond, Queue};
use millpond_tx_diesel as _;

/// Where the mails go.
pub const MAIL: Queue<String> = Queue::new("mail");

const TABLE: &str = "create table if not exists orders (customer text not null)";

type Done = Result<(), Box<dyn Error + Send + Sync>>;

const ORDER: &str = "insert into orders (customer) values ('ada')";

/// Ends a transaction with an error, so that it is rolled back.
fn ended(commit: bool) -> Done {
    if commit { Ok(()) } else { Err("rolled back".into()) }
}

/// Places an order at the store's own database, and commits it or not.
pub async fn place_order(pond: &Pond, url: &str, commit: bool) -> Done {
    let done = match url.split(':').next() {
        Some("sqlite") => {
            let (pond, path) = (pond.clone(), url.trim_start_matches("sqlite://").to_owned());
            tokio::task::spawn_blocking(move || {
                let mut connection = diesel::SqliteConnection::establish(&path)?;
                // Without it diesel waits for no other writer, and the store is one.
                connection.batch_execute("pragma busy_timeout = 5000")?;
                connection.batch_execute(TABLE)?;
                connection.transaction(|tx| -> Done {
                    diesel::RunQueryDsl::execute(diesel::sql_query(ORDER), tx)?;
                    pond.within(tx).send(&MAIL, ["ada".to_owned().dedup_key("order:1")])?;
                    pond.within(tx).send(&MAIL, ["the shop".to_owned()])?;
                    ended(commit)
                })
            })
            .await?
        }
        Some("postgres") => {
            let mut connection = AsyncPgConnection::establish(url).await?;
            diesel::sql_query(TABLE).execute(&mut connection).await?;
            connection
                .transaction(async |tx| -> Done {
                    diesel::sql_query(ORDER).execute(tx).await?;
                    pond.within(tx).send(&MAIL, ["ada".to_owned().dedup_key("order:1")]).await?;
                    pond.within(tx).send(&MAIL, ["the shop".to_owned()]).await?;
                    ended(commit)
                })
                .await
        }
        _ => {
            let mut connection = AsyncMysqlConnection::establish(url).await?;
            diesel::sql_query(TABLE).execute(&mut connection).await?;
            connection
                .transaction(async |tx| -> Done {
                    diesel::sql_query(ORDER).execute(tx).await?;
                    pond.within(tx).send(&MAIL, ["ada".to_owned().dedup_key("order:1")]).await?;
                    pond.within(tx).send(&MAIL, ["the shop".to_owned()]).await?;
                    ended(commit)
                })
                .await
        }
    };
    if commit { done } else { Ok(()) }
}

/// Reads what to do from the command line.
#[tokio::main]
pub async fn main() -> Done {
    let mut args = std::env::args().skip(1);
    let (url, end) = (args.next().ok_or("which database?")?, args.next().unwrap_or_default());
    let pond = Pond::open(&url).await?;
    pond.declare(&MAIL).await?;
    place_order(&pond, &url, end != "rollback").await?;
    pond.close().await;
    Ok(())
}
