//! What the code under test has sent: the pond as a recording fake.

use std::fmt::Debug;

use millpond::view::MessageRow;
use millpond_core::query::{Field, Query};
use millpond_core::view::Find;
use millpond_engine::body::Body;

use crate::kit::TestPond;

impl TestPond {
    /// Every message that was sent to a queue, in the order in which it was sent, in whatever state it is. What is in a
    /// buffer is written out first.
    ///
    /// # Panics
    ///
    /// When the store does not answer.
    pub async fn messages(&self, queue: &str) -> Vec<MessageRow> {
        self.bench.node().pond.flush().await;
        let query = Query::default().and(Field::Queue, [queue.to_owned()]);
        let find = Find { query, rows_max: 10_000, bodies: true, ..Find::default() };
        let mut messages = self.store().messages(find).await.expect("the store in memory answers").items;
        messages.reverse();
        messages
    }

    /// The bodies of every message that was sent to a queue, in the order in which they were sent.
    ///
    /// # Panics
    ///
    /// When one cannot be decoded.
    pub async fn sent<B: Body>(&self, queue: &str) -> Vec<B> {
        let decode = |row: &MessageRow| match B::decode(Some(&row.content_type), &row.body) {
            Ok(body) => body,
            Err(why) => panic!("message {} of `{queue}` is no such body: {why}", row.id),
        };
        self.messages(queue).await.iter().map(decode).collect()
    }

    /// Checks that exactly these bodies were sent to a queue, in whatever order.
    ///
    /// # Panics
    ///
    /// When they were not, with what was sent.
    #[track_caller]
    pub fn assert_sent<'a, B: Body + Debug + PartialEq>(
        &'a self,
        queue: &'a str,
        expected: impl IntoIterator<Item = B>,
    ) -> impl Future<Output = ()> + 'a {
        let expected: Vec<B> = expected.into_iter().collect();
        async move {
            let sent: Vec<B> = self.sent(queue).await;
            let count = |all: &[B], one: &B| all.iter().filter(|other| *other == one).count();
            let same = sent.len() == expected.len()
                && expected.iter().all(|one| count(&sent, one) == count(&expected, one));
            assert!(same, "to `{queue}` was sent {sent:?}, not {expected:?}");
        }
    }

    /// Checks that nothing was sent to any queue.
    ///
    /// # Panics
    ///
    /// When something was, with where.
    pub async fn assert_nothing_sent(&self) {
        self.bench.node().pond.flush().await;
        let queues = self.store().queues().await.expect("the store in memory answers");
        let sent: Vec<String> = queues
            .into_iter()
            .filter(|queue| 0 < queue.sent)
            .map(|queue| format!("{} to `{}`", queue.sent, queue.name))
            .collect();
        assert!(sent.is_empty(), "something was sent: {}", sent.join(", "));
    }
}
