//! Upkeep: deletes what is past its retention, in chunks, on one node at a time.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::patience::{Patience, roll};
use crate::pond::Pond;
use crate::renewal::pause;

/// How often it looks.
const EVERY: Duration = Duration::from_secs(60);

/// Rows of one table in one transaction.
const ROWS_MAX: usize = 10_000;

/// The pause between two chunks, in which others write.
const BETWEEN: Duration = Duration::from_millis(50);

/// The loop of one node.
pub(crate) struct Upkeep {
    pub(crate) pond: Pond,
    pub(crate) node: String,
    pub(crate) stop: CancellationToken,
}

impl Upkeep {
    pub(crate) async fn run(&self) {
        let mut patience = Patience::unhurried();
        let mut wait = EVERY.mul_f64(roll());
        while pause(&self.stop, wait).await {
            match self.pond.store().retain(self.node.clone(), ROWS_MAX).await {
                Ok(0) => (wait, _) = (EVERY, patience.reset()),
                Ok(rows) => {
                    tracing::debug!(rows, "deleted what was past its retention");
                    wait = BETWEEN;
                }
                Err(error) => {
                    tracing::warn!(%error, cause = error.causes(), "cannot clean up now");
                    wait = patience.wait();
                }
            }
        }
    }
}
