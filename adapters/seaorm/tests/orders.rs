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
