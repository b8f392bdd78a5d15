//! Waiting until nothing is left to do.

use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::kit::{LIMIT, TestPond};

/// How far two observations are apart: a message is for a moment in neither place.
const APART: Duration = Duration::from_millis(20);

impl TestPond {
    /// Writes out the buffers, moves what is due, and waits until nothing is left to do.
    ///
    /// # Panics
    ///
    /// When something is left to do after 10 s, with what that is.
    pub async fn flush(&self) {
        self.pond_of_bench().flush().await;
        self.wait_for_idle().await;
    }

    /// Waits until nothing is left to do: no message in a buffer, none due in the outbox, none ready in a queue with a
    /// listener, none with a worker. It must be so twice, 20 ms apart. What is due later waits for
    /// [`advance`](Self::advance).
    ///
    /// # Panics
    ///
    /// When something is left to do after 10 s, with what that is.
    pub async fn wait_for_idle(&self) {
        if let Err(left) = self.idle_within(LIMIT).await {
            panic!("not idle within {LIMIT:?}: {}", left.join("; "));
        }
    }

    /// The same with a limit of its own; answers what is left to do.
    ///
    /// # Errors
    ///
    /// What was left to do at the end, in words.
    pub async fn idle_within(&self, limit: Duration) -> Result<(), Vec<String>> {
        let began = Instant::now();
        let mut seen_idle = false;
        loop {
            let left = self.left_to_do().await;
            match (left.is_empty(), seen_idle) {
                (true, true) => return Ok(()),
                (idle, _) => seen_idle = idle,
            }
            if limit <= began.elapsed() && !left.is_empty() {
                return Err(left);
            }
            self.nudge();
            let _ = timeout(APART, std::future::pending::<()>()).await;
        }
    }

    /// What is left to do now, in words.
    async fn left_to_do(&self) -> Vec<String> {
        let mut left: Vec<String> = Vec::new();
        for (queue, messages) in self.pond_of_bench().buffered() {
            left.push(format!("{messages} messages of `{queue}` are in a buffer"));
        }
        let store = self.store();
        let pulse = store.pulse(Vec::new()).await.expect("the store in memory answers");
        if pulse.next_due.is_some_and(|due| due <= pulse.now) {
            left.push("messages in the outbox are due".to_owned());
        }
        for queue in store.queues().await.expect("the store in memory answers") {
            let name = &queue.name;
            if 0 < queue.ready && 0 < queue.listeners && queue.paused_by.is_empty() {
                left.push(format!("{} messages of `{name}` are ready", queue.ready));
            }
            if 0 < queue.leased {
                left.push(format!("{} messages of `{name}` are with a worker", queue.leased));
            }
        }
        left
    }

    fn pond_of_bench(&self) -> &millpond_engine::pond::Pond {
        &self.bench.node().pond
    }
}
