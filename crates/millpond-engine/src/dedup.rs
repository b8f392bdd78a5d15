//! A queue's own dedup function: a pure function over the list of bodies of a send.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use millpond_core::dedup::{kept, stand_ins};
use millpond_core::message::{MessageId, NewMessage};
use millpond_core::store::Stored;

use crate::body::Body;
use crate::counters::Counter;
use crate::pond::Pond;
use crate::supervise::panic_text;

/// The function of a queue, whatever its bodies are.
#[derive(Clone)]
pub(crate) struct Dedup(Arc<dyn Fn(&[NewMessage]) -> Result<Vec<bool>, String> + Send + Sync>);

impl std::fmt::Debug for Dedup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dedup")
    }
}

/// What a dedup function left of a list.
pub(crate) struct Deduplicated {
    /// What is sent, in order.
    pub(crate) kept: Vec<NewMessage>,
    /// What was removed: its place in the list, its id, and what stands for it.
    removed: Vec<(usize, MessageId, MessageId)>,
}

impl Dedup {
    pub(crate) fn of<B: Body>(function: fn(Vec<B>) -> Vec<B>) -> Self {
        Self(Arc::new(move |messages| which(function, messages)))
    }

    /// Applies it. One that fails is logged, and everything is sent as it was.
    pub(crate) fn apply(&self, pond: &Pond, queue: &str, messages: Vec<NewMessage>) -> Deduplicated {
        if messages.len() < 2 {
            return Deduplicated { kept: messages, removed: Vec::new() };
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
        let mut left = Deduplicated { kept: Vec::with_capacity(messages.len()), removed: Vec::new() };
        for (place, (message, kept)) in messages.into_iter().zip(kept).enumerate() {
            if kept {
                left.kept.push(message);
            } else {
                left.removed.push((place, message.id, stand_ins[place].unwrap_or(message.id)));
            }
        }
        pond.queue_counts().add(Counter::Deduplicated, queue, left.removed.len());
        left
    }
}

impl Deduplicated {
    /// The answers about what was sent, with those about what was removed among them, in the order of the list.
    pub(crate) fn merge(
        removed: Vec<(usize, MessageId, MessageId)>,
        mut sent: Vec<(MessageId, Stored)>,
    ) -> Vec<(MessageId, Stored)> {
        // In the order of their places: each is inserted where it was.
        for (place, id, of) in removed {
            sent.insert(place.min(sent.len()), (id, Stored::Duplicate { of }));
        }
        sent
    }

    /// What is sent, and what [`merge`](Self::merge) needs to know of the rest.
    pub(crate) fn split(self) -> (Vec<NewMessage>, Vec<(usize, MessageId, MessageId)>) {
        (self.kept, self.removed)
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
        let (kept, removed) = Dedup::of(function).apply(&pond, QUEUE.name(), messages).split();
        let place = |id: MessageId| ids.iter().position(|known| *known == id).unwrap();
        let kept = kept.iter().map(|message| serde_json::from_slice(&message.body).unwrap()).collect();
        let removed = removed.into_iter().map(|(at, _, of)| (at, place(of))).collect();
        (kept, removed, pond.queue_counts().get(Counter::Deduplicated, QUEUE.name()))
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
        let merged = Deduplicated::merge(
            vec![(1, id(2), id(1)), (3, id(4), id(1))],
            vec![(id(1), Stored::New), (id(3), Stored::New)],
        );
        assert_eq!(merged.iter().map(|(id, _)| id.0.as_u128()).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }
}
