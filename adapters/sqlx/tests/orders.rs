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
    use sqlx::Connection as _;
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite://{}", folder.path().join("shop.db").display());
    let pond = millpond::Pond::open(&url).await?;
    pond.declare(&orders::MAIL).await?;
    let mut connection = sqlx::SqliteConnection::connect(&url).await?;
    let refused = pond.within(&mut connection).send(&orders::MAIL, ["ada".to_owned()]).await;
    assert_eq!(refused.expect_err("none is open").code(), millpond::Code::UnsupportedStore);
    assert_eq!(pond.store().queues().await?.remove(0).sent, 0);
    pond.close().await;
    Ok(())
}

/// A store in a new file, checked with an order that is placed in a wrong way.
async fn checked(wrong: impl AsyncFn(&millpond::Pond, &str, bool) -> Result<(), Box<dyn Error>>) {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite://{}", folder.path().join("shop.db").display());
    let place = async |pond: &millpond::Pond, commit| wrong(pond, &url, commit).await.expect("it is placed");
    check::exactly_what_is_committed_is_sent(&url, place).await;
}

#[tokio::test(flavor = "multi_thread")]
#[should_panic(expected = "nothing was sent")]
async fn a_message_that_outlives_a_rollback_is_caught() {
    checked(async |pond, _, _| {
        pond.send(&orders::MAIL, ["ada".to_owned()]).await?;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[should_panic(expected = "both messages were sent")]
async fn a_message_that_a_commit_does_not_deliver_is_caught() {
    checked(async |pond, url, _| orders::place_order(pond, url, false).await).await;
}
