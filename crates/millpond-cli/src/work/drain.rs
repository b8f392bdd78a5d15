//! When a queue is empty: nothing is ready, nothing is with a worker, and nothing in the outbox is due.

use std::time::Duration;

use millpond::Pond;

/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Resolves when there is nothing to do now. What is due later does not count.
pub(super) async fn empty(pond: &Pond, queue: &str) {
    loop {
        match is_empty(pond, queue).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, cause = error.causes(), "cannot see whether the queue is empty")
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// A message on its way from the outbox to the log is due until it is ready; one that failed is with its worker
/// until it waits. So three looks in a row miss none.
async fn is_empty(pond: &Pond, queue: &str) -> millpond::Result<bool> {
    if !nothing_in_log(pond, queue).await? {
        return Ok(false);
    }
    let pulse = pond.store().pulse(Vec::new()).await?;
    if pulse.next_due.is_some_and(|due| due <= pulse.now) {
        return Ok(false);
    }
    nothing_in_log(pond, queue).await
}

async fn nothing_in_log(pond: &Pond, queue: &str) -> millpond::Result<bool> {
    let views = pond.store().queues().await?;
    Ok(views.iter().filter(|view| view.name == queue).all(|view| view.ready == 0 && view.leased == 0))
}
