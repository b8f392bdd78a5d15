//! Runs the example, with a commit and with a rollback, in each database.

use std::error::Error;

#[path = "../../check.rs"]
mod check;
#[path = "../examples/orders.rs"]
#[allow(dead_code, unreachable_pub, reason = "a test calls what its `main` calls")]
mod orders;

#[tokio::test(flavor = "multi_thread")]
async fn an_order_and_its_mail_are_one() -> Result<(), Box<dyn Error>> {
    check::in_every_database(orders::place_order).await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_transaction_nothing_is_sent() -> Result<(), Box<dyn Error>> {
    use diesel::Connection as _;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("shop.db").display().to_string();
    let pond = millpond::Pond::open(&format!("sqlite://{path}")).await?;
    pond.declare(&orders::MAIL).await?;
    let mut connection = diesel::SqliteConnection::establish(&path)?;
    let refused = pond.within(&mut connection).send(&orders::MAIL, ["ada".to_owned()]);
    assert_eq!(refused.expect_err("none is open").code(), millpond::Code::UnsupportedStore);
    assert_eq!(pond.store().queues().await?.remove(0).sent, 0);
    pond.close().await;
    Ok(())
}
