//! Loops that must not end: what panics is logged and begun again.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::renewal::pause;

/// The wait before a loop that panicked is begun again.
const AGAIN: Duration = Duration::from_secs(1);

/// What a panic carried.
pub(crate) type Panic = Box<dyn Any + Send>;

/// The output of a future, or the panic that ended it.
pub(crate) async fn caught<F: Future>(future: F) -> Result<F::Output, Panic> {
    let mut future = pin!(future);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

/// The text of a panic, as far as it has one.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panic: {}", text.unwrap_or_else(|| "without a text".to_owned()))
}

/// Runs a loop until it returns, or until `stop`; begins it again when it panics.
pub(crate) async fn supervise<L: AsyncFn()>(name: &'static str, stop: CancellationToken, run: L) {
    while let Err(panic) = caught(run()).await {
        tracing::error!(name, why = panic_text(&*panic), "a loop panicked; it begins again");
        if !pause(&stop, AGAIN).await {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_panics_begins_again() {
        let runs = Cell::new(0);
        supervise("test", CancellationToken::new(), async || {
            runs.set(runs.get() + 1);
            assert!(3 <= runs.get(), "not yet");
        })
        .await;
        assert_eq!(runs.get(), 3);
    }
}
