//! A queue's own dedup function: a pure function over the list of bodies of a send.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use millpond_core::dedup::{kept, stand_ins};
use millpond_core::message::{MessageId, NewMessage};
use millpond_core::store::Stored;

use crate::body::Body;
use crate::counters::Counter;
use crate::pond::{Pond, Sent, SentMessage};
use crate::supervise::panic_text;

/// The function of a queue, whatever its bodies are.
#[derive(Clone)]
pub(crate) struct Dedup(Arc<Which>);

/// Says which messages of a list are kept.
type Which = dyn Fn(&[NewMessage]) -> Result<Vec<bool>, String> + Send + Sync;

impl std::fmt::Debug for Dedup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dedup")
    }
}

/// What a dedup function left of a list.
pub(crate) struct Deduplicated {
    /// What is sent, in order.
    pub(crate) kept: Vec<NewMessage>,
    pub(crate) removed: Removed,
}

/// What was removed from a list: its place, its id, and what stands for it, in the order of the places.
#[derive(Debug, Default)]
pub(crate) struct Removed(Vec<(usize, MessageId, MessageId)>);

impl Dedup {
    pub(crate) fn of<B: Body>(function: fn(Vec<B>) -> Vec<B>) -> Self {
        Self(Arc::new(move |messages| which(function, messages)))
    }

    /// Applies it. One that fails is logged, and everything is sent as it was.
    pub(crate) fn apply(&self, pond: &Pond, queue: &str, messages: Vec<NewMessage>) -> Deduplicated {
        if messages.is_empty() {
            return Deduplicated { kept: messages, removed: Removed::default() };
        }
        let kept = (self.0)(&messages).unwrap_or_else(|why| {
            tracing::error!(%queue, why, "the dedup function failed: what it was given is sent as it was");
            vec![true; messages.len()]
        });
        let bodies: Vec<&[u8]> = messages.iter().map(|message| &message.body[..]).collect();
        let stand_ins: Vec<Option<MessageId>> = stand_ins(&bodies, &kept)
            .into_iter()
            .map(|place| place.map(|place| messages[place].id))
            .collect();
        let (mut left, mut removed) = (Vec::with_capacity(messages.len()), Vec::new());
        for (place, (message, kept)) in messages.into_iter().zip(kept).enumerate() {
            if kept {
                left.push(message);
            } else {
                removed.push((place, message.id, stand_ins[place].unwrap_or(message.id)));
            }
        }
        pond.counts().add(Counter::Deduplicated, queue, removed.len());
        Deduplicated { kept: left, removed: Removed(removed) }
    }
}

impl Removed {
    /// The answer about what was sent, with those about what was removed among it, in the order of the list.
    pub(crate) fn merge(self, mut sent: Sent) -> Sent {
        for (place, id, of) in self.0 {
            let answer = SentMessage { id, stored: Stored::Duplicate { of } };
            sent.messages.insert(place.min(sent.messages.len()), answer);
        }
        sent
    }
}

/// Which messages a function keeps.
fn which<B: Body>(function: fn(Vec<B>) -> Vec<B>, messages: &[NewMessage]) -> Result<Vec<bool>, String> {
    let decode = |message: &NewMessage| B::decode(message.content_type.as_deref(), &message.body);
    let run = || -> Result<Vec<bool>, String> {
        let bodies: Vec<B> =
            messages.iter().map(decode).collect::<Result<_, _>>().map_err(|why| why.to_string())?;
        let outputs: Vec<Vec<u8>> = function(bodies)
            .iter()
            .map(|body| body.encode().map(|encoded| encoded.bytes))
            .collect::<Result<_, _>>()
            .map_err(|why| why.to_string())?;
        let inputs: Vec<&[u8]> = messages.iter().map(|message| &message.body[..]).collect();
        let outputs: Vec<&[u8]> = outputs.iter().map(Vec::as_slice).collect();
        kept(&inputs, &outputs).map_err(|why| why.to_string())
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(panic_text(&*panic)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::fake::FakeStore;
    use crate::queue::Queue;

    const QUEUE: Queue<u32> = Queue::new("mail");

    /// What is left of `bodies`, by their places, and what the removed ones are stood for by.
    fn left(function: fn(Vec<u32>) -> Vec<u32>, bodies: &[u32]) -> (Vec<u32>, Vec<(usize, usize)>, u64) {
        let pond = Pond::new(Arc::new(FakeStore::default()));
        let messages = crate::fake::messages(bodies);
        let ids: Vec<MessageId> = messages.iter().map(|message| message.id).collect();
        let Deduplicated { kept, removed } = Dedup::of(function).apply(&pond, QUEUE.name(), messages);
        let place = |id: MessageId| ids.iter().position(|known| *known == id).unwrap();
        let kept = kept.iter().map(|message| serde_json::from_slice(&message.body).unwrap()).collect();
        let removed = removed.0.into_iter().map(|(at, _, of)| (at, place(of))).collect();
        (kept, removed, pond.counts().of(Counter::Deduplicated, QUEUE.name()))
    }

    fn unique(bodies: Vec<u32>) -> Vec<u32> {
        let mut seen = BTreeSet::new();
        bodies.into_iter().filter(|body| seen.insert(*body)).collect()
    }

    #[test]
    fn a_function_removes_and_is_counted() {
        assert_eq!(left(unique, &[1, 2, 1, 3, 2]), (vec![1, 2, 3], vec![(2, 0), (4, 1)], 2));
        assert_eq!(left(|_| Vec::new(), &[1, 2]), (vec![], vec![(0, 0), (1, 1)], 2), "nothing is sent");
    }

    #[test]
    fn one_that_fails_changes_nothing() {
        let all = |bodies: &[u32]| (bodies.to_vec(), vec![], 0);
        assert_eq!(left(|_| vec![9], &[1, 2]), all(&[1, 2]), "it made something up");
        assert_eq!(left(|_| panic!("boom"), &[1, 2]), all(&[1, 2]));
    }

    #[test]
    fn answers_keep_the_order_of_the_items() {
        let id = |number| MessageId(uuid::Uuid::from_u128(number));
        let sent = |number| SentMessage { id: id(number), stored: Stored::New };
        let sent = Sent { messages: vec![sent(1), sent(3)], ..Sent::default() };
        let merged = Removed(vec![(1, id(2), id(1)), (3, id(4), id(1))]).merge(sent);
        assert_eq!(merged.ids().map(|id| id.0.as_u128()).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }
}
