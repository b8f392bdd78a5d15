//! The message of a business row, and its queues. Shared by clerks, recipients and the parent.

use std::time::Duration;

use millpond::{Backoff, Queue, TxQueue};
use serde::{Deserialize, Serialize};

use crate::transactions::errand::number_of;
use crate::work::LEASE;

const BACKOFF: Backoff = Backoff::fixed(Duration::from_millis(150));

/// Enough for every kill of a run: a death counts as an attempt.
const ATTEMPTS_MAX: u32 = 100;

/// A queue whose messages are sent within a transaction only.
pub(crate) const ORDERS: TxQueue<Announcement> =
    TxQueue::new("orders").lease(LEASE).attempts_max(ATTEMPTS_MAX).backoff(BACKOFF);

/// A queue that also takes messages outside of one.
pub(crate) const NOTES: Queue<Announcement> =
    Queue::new("notes").lease(LEASE).attempts_max(ATTEMPTS_MAX).backoff(BACKOFF);

/// Says that a row of `torture_order` is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Announcement {
    pub(crate) tag: u64,
}

/// Whether a row is announced in the queue that requires a transaction.
pub(crate) const fn has_own_queue(tag: u64) -> bool {
    (number_of(tag) + tag).is_multiple_of(2)
}

pub(crate) fn queue_name(tag: u64) -> &'static str {
    if has_own_queue(tag) { "orders" } else { "notes" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_announced_in_the_queue_that_is_named() {
        assert_eq!((queue_name(2), queue_name(3)), (ORDERS.name(), NOTES.name()));
    }
}
