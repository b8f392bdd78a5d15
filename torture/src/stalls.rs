//! How long messages waited after the death of their worker.

use std::collections::HashMap;
use std::time::Duration;

use millpond_testkit::judge::history::{Event, Op, Phase};
use uuid::Uuid;

#[derive(Debug, Default)]
pub(crate) struct Stalls {
    /// Which process a token was leased by.
    holders: HashMap<Uuid, u32>,
    /// When a process died.
    deaths: HashMap<u32, u64>,
    longest: Option<u64>,
}

impl Stalls {
    pub(crate) fn take(&mut self, event: &Event) {
        match (event.op, event.ph) {
            (Op::Lease, Phase::Ok) => {
                self.holders.extend(event.token.zip(event.node));
            }
            (Op::Fault, _) if event.kind.as_deref() != Some("pause") => {
                self.deaths.extend(event.node.map(|node| (node, event.t)));
            }
            (Op::Reclaim, _) => {
                let holder = event.old.and_then(|old| self.holders.get(&old));
                let death = holder.and_then(|holder| self.deaths.get(holder));
                // What was taken over from a living one is no stall.
                self.longest = self.longest.max(death.and_then(|death| event.t.checked_sub(*death)));
            }
            _ => {}
        }
    }

    pub(crate) fn longest(&self) -> Option<Duration> {
        self.longest.map(Duration::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(t: u64, op: Op) -> Event {
        Event { node: Some(1), ..Event::new(t, op, Phase::Ok) }
    }

    #[test]
    fn a_stall_is_from_death_to_takeover() {
        let token = Some(Uuid::from_u128(7));
        let mut stalls = Stalls::default();
        stalls.take(&Event { token, ..event(10, Op::Lease) });
        stalls.take(&Event { old: token, ..event(15, Op::Reclaim) });
        assert_eq!(stalls.longest(), None, "it lives");
        stalls.take(&Event { kind: Some("kill".into()), ..event(20, Op::Fault) });
        stalls.take(&Event { node: Some(2), old: token, ..event(50, Op::Reclaim) });
        assert_eq!(stalls.longest(), Some(Duration::from_nanos(30)));
    }
}
