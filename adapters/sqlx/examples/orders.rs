//! An order and its mails, in one transaction of sqlx: `cargo run --example sqlx -- postgres://… commit`.

use std::error::Error;

use millpond::{ItemOptions, Pond, Queue};
use millpond_tx_sqlx as _;
use sqlx::{Connection, MySqlConnection, PgConnection, SqliteConnection};

/// Where the mails go.
pub const MAIL: Queue<String> = Queue::new("mail");

const TABLE: &str = "create table if not exists orders (customer text not null)";

/// Places an order at the store's own database, and commits it or not.
pub async fn place_order(pond: &Pond, url: &str, commit: bool) -> Result<(), Box<dyn Error>> {
    match url.split(':').next() {
        Some("sqlite") => {
            let mut connection = SqliteConnection::connect(url).await?;
            sqlx::raw_sql(TABLE).execute(&mut connection).await?;
            let mut tx = connection.begin().await?;
            sqlx::query("insert into orders (customer) values (?)").bind("ada").execute(&mut *tx).await?;
            pond.within(&mut tx).send(&MAIL, ["ada".to_owned().dedup_key("order:1")]).await?;
            pond.within(&mut tx).send(&MAIL, ["the shop".to_owned()]).await?;
            if commit { tx.commit().await? } else { tx.rollback().await? }
        }
        Some("postgres") => {
            let mut connection = PgConnection::connect(url).await?;
            sqlx::raw_sql(TABLE).execute(&mut connection).await?;
            let mut tx = connection.begin().await?;
            sqlx::query("insert into orders (customer) values ($1)").bind("ada").execute(&mut *tx).await?;
            pond.within(&mut tx).send(&MAIL, ["ada".to_owned().dedup_key("order:1")]).await?;
            pond.within(&mut tx).send(&MAIL, ["the shop".to_owned()]).await?;
            if commit { tx.commit().await? } else { tx.rollback().await? }
        }
        _ => {
            let mut connection = MySqlConnection::connect(url).await?;
            sqlx::raw_sql(TABLE).execute(&mut connection).await?;
            let mut tx = connection.begin().await?;
            sqlx::query("insert into orders (customer) values (?)").bind("ada").execute(&mut *tx).await?;
            pond.within(&mut tx).send(&MAIL, ["ada".to_owned().dedup_key("order:1")]).await?;
            pond.within(&mut tx).send(&MAIL, ["the shop".to_owned()]).await?;
            if commit { tx.commit().await? } else { tx.rollback().await? }
        }
    }
    Ok(())
}

/// Reads what to do from the command line.
#[tokio::main]
pub async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (url, end) = (args.next().ok_or("which database?")?, args.next().unwrap_or_default());
    let pond = Pond::open(&url).await?;
    pond.declare(&MAIL).await?;
    place_order(&pond, &url, end != "rollback").await?;
    pond.close().await;
    Ok(())
}
