//! An order and its mails, in one transaction of SeaORM: `cargo run --example seaorm -- postgres://… commit`.

use std::error::Error;

use millpond::{ItemOptions, Pond, Queue};
use millpond_tx_seaorm as _;
use sea_orm::{ConnectionTrait, Database, TransactionTrait};

/// Where the mails go.
pub const MAIL: Queue<String> = Queue::new("mail");

const TABLE: &str = "create table if not exists orders (customer text not null)";

/// Places an order at the store's own database, and commits it or not.
pub async fn place_order(pond: &Pond, url: &str, commit: bool) -> Result<(), Box<dyn Error>> {
    let database = Database::connect(url).await?;
    database.execute_unprepared(TABLE).await?;
    let mut tx = database.begin().await?;
    tx.execute_unprepared("insert into orders (customer) values ('ada')").await?;
    pond.within(&mut tx).send(&MAIL, ["ada".to_owned().dedup_key("order:1")]).await?;
    pond.within(&mut tx).send(&MAIL, ["the shop".to_owned()]).await?;
    if commit {
        tx.commit().await?
    } else {
        tx.rollback().await?
    }
    database.close().await?;
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
