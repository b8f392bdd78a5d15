//! Faults of a store, on order: the next so many calls of a verb fail, or wait, or succeed without an answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millpond_core::error::{Code, Error};

use crate::gate::Gate;

/// What happens to a call.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Nothing was done: `store-unavailable`.
    Unavailable,
    /// Nothing was done, for this reason.
    Refused(Code),
    /// It was done, and its answer was lost: `unknown-outcome`.
    LostAnswer,
    /// It waits at the gate, and is done then.
    Held(Arc<Gate>),
    /// Of `append` alone: it is done twice, under the same ids, as by a sender whose first answer was lost.
    Repeated,
}

/// The verbs of the ports that can be given a fault. Three are of transactions that a caller holds: `open` begins one
/// that is of no job, `write` puts its messages into it, `commit` ends it.
const VERBS: [&str; 14] = [
    "append",
    "lease",
    "settle",
    "renew",
    "end_worker",
    "take_over",
    "begin",
    "open",
    "write",
    "commit",
    "pulse",
    "relay",
    "take_hooks",
    "finish_hooks",
];

/// The faults that are ordered of one node's store.
#[derive(Debug, Default)]
pub struct Faults {
    orders: Mutex<Vec<Order>>,
}

#[derive(Debug)]
struct Order {
    verb: String,
    fault: Fault,
    left: usize,
    fired: usize,
}

impl Faults {
    /// The next `times` calls of a verb of the store, such as `append`, `settle`, `renew` or `relay`, end like this.
    /// Several orders for one verb are filled one after the other.
    ///
    /// # Panics
    ///
    /// When there is no such verb, or none that can be repeated.
    pub fn order(&self, verb: &str, fault: Fault, times: usize) {
        assert!(!matches!(fault, Fault::Repeated) || verb == "append", "`{verb}` cannot be repeated");
        assert!(VERBS.contains(&verb), "`{verb}` can have no fault; these can: {}", VERBS.join(", "));
        self.lock().push(Order { verb: verb.to_owned(), fault, left: times, fired: 0 });
    }

    /// How many calls of a verb have met a fault.
    pub fn fired(&self, verb: &str) -> usize {
        self.lock().iter().filter(|order| order.verb == verb).map(|order| order.fired).sum()
    }

    /// What was ordered and has not happened does not happen any more.
    pub fn clear(&self) {
        self.lock().iter_mut().for_each(|order| order.left = 0);
    }

    /// What happens to the call of `verb` that begins now.
    pub(crate) fn next(&self, verb: &str) -> Option<Fault> {
        let mut orders = self.lock();
        let order = orders.iter_mut().find(|order| order.verb == verb && 0 < order.left)?;
        order.left -= 1;
        order.fired += 1;
        Some(order.fault.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Order>> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of a call that met a fault.
pub(crate) fn error(code: Code, doing: &str) -> Error {
    Error::new(code, doing).because("a fault that the test has ordered")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_fires_as_often_as_it_says() {
        let faults = Faults::default();
        faults.order("append", Fault::Unavailable, 2);
        faults.order("append", Fault::LostAnswer, 1);
        assert!(faults.next("settle").is_none());
        let met: Vec<_> = (0..5).map(|_| faults.next("append")).collect();
        assert!(matches!(
            met[..],
            [Some(Fault::Unavailable), Some(Fault::Unavailable), Some(Fault::LostAnswer), None, None]
        ));
        assert_eq!(faults.fired("append"), 3);
        faults.order("append", Fault::Unavailable, 9);
        faults.clear();
        assert!(faults.next("append").is_none());
    }

    #[test]
    #[should_panic(expected = "`apend` can have no fault")]
    fn a_verb_that_does_not_exist_is_no_silent_test() {
        Faults::default().order("apend", Fault::Unavailable, 1);
    }
}
