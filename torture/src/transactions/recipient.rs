//! The role of a recipient: a worker, and so a relay, that tells its parent of every message it is given.

use std::sync::Arc;
use std::time::Duration;

use millpond::{Job, Pond, Verdict, Worker};
use millpond_core::error::{Code, Error, Result};

use crate::database::open_patiently;
use crate::transactions::announcement::{Announcement, NOTES, ORDERS};
use crate::wire::{Report, Reporter};
use crate::worker::orphaned;

/// Handlers of a queue that run at once.
const SLOTS: usize = 16;

/// Handlers take so long at most, so that some messages are in hand when their worker is killed.
const LONGEST_MS: u64 = 12;

/// Works until its parent closes the pipe.
pub(crate) fn run(url: &str) -> Result<()> {
    let failed = |error: std::io::Error| Error::new(Code::Internal, "start a recipient").because(error);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(failed)?;
    runtime.block_on(async {
        let pond = Pond::with_store(open_patiently(url).await?);
        let worker = Worker::new(&pond)
            .state(Arc::new(Reporter::default()))
            .concurrency(SLOTS)
            .shutdown_timeout(Duration::from_secs(2))
            .cancel_grace(Duration::from_secs(1))
            .handle(&ORDERS, handle)
            .handle(&NOTES, handle);
        worker.run_until(orphaned()).await?;
        pond.close().await;
        Ok(())
    })
}

/// It is told before it is acknowledged, so what was acknowledged is known.
async fn handle(job: Job<Announcement>, reporter: Arc<Reporter>) -> Result<Verdict, String> {
    reporter.send(&Report::Delivered { tag: job.body.tag });
    tokio::time::sleep(Duration::from_millis(job.body.tag % LONGEST_MS)).await;
    Ok(Verdict::Ack)
}
