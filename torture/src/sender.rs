//! The role of a sender: sends the batches that its parent names, one after the other.
//!
//! It makes the ids itself and reports them before it calls the store, so that a batch whose sender was killed is
//! known.

use std::io::BufRead;
use std::time::Duration;

use millpond::sqlite::{Options, SqliteStore};
use millpond::{Due, IdSource, Stored};
use millpond_core::error::{Code, Error, ErrorKind, Result};
use millpond_core::message::{Dedup, MessageId, NewMessage};
use millpond_core::store::{Admin as _, Log as _, QueueId};
use millpond_testkit::judge::history::{Event, Op, Phase};

use crate::wire::{Report, Reporter};
use crate::work::{MessageOrder, Order, Work};

const DEDUP_WINDOW: Duration = Duration::from_secs(3_600);

/// The priority class of a message that names none.
const CLASS: u8 = millpond_core::queue::CLASS_DEFAULT;

/// Sends until its parent closes the pipe.
pub(crate) fn run(url: &str) -> Result<()> {
    let failed = |error: std::io::Error| Error::new(Code::Internal, "start a sender").because(error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let sender = Sender {
        store: SqliteStore::open(url, Options::default())?,
        ids: IdSource::new(),
        reporter: Reporter::default(),
    };
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(failed)?;
        let order: Order = serde_json::from_str(&line)
            .map_err(|why| Error::new(Code::InvalidJson, "read an order").because(why))?;
        runtime.block_on(sender.obey(order))?;
    }
    runtime.block_on(sender.store.close());
    Ok(())
}

struct Sender {
    store: SqliteStore,
    ids: IdSource,
    reporter: Reporter,
}

impl Sender {
    async fn obey(&self, order: Order) -> Result<()> {
        let ids = if order.ids.is_empty() {
            self.ids.ids(order.messages.len())?
        } else {
            order.ids.iter().copied().map(MessageId).collect()
        };
        let queue = self.queue(&order.queue).await?;
        let messages = messages(&order, &ids)?;
        self.reporter.events(events(&order, &ids, Phase::Invoke, None));
        let answer = self.store.append(queue, messages).await;
        let (ph, stored) = match &answer {
            Ok(_) => (Phase::Ok, Some(true)),
            Err(error) if error.kind() == ErrorKind::Unknown => (Phase::Info, None),
            Err(_) => (Phase::Fail, Some(false)),
        };
        let err = answer.as_ref().err().map(|error| error.code().as_str());
        self.reporter.events(events(&order, &ids, ph, err));
        let torn = answer.is_ok_and(|stored| is_torn(&stored, &ids));
        self.reporter.send(&Report::Answered { batch: order.batch, stored, torn });
        Ok(())
    }

    async fn queue(&self, name: &str) -> Result<QueueId> {
        let found = self.store.queue(name.to_owned()).await?;
        found
            .map(|queue| queue.id)
            .ok_or_else(|| Error::new(Code::UnknownQueue, format!("look up queue `{name}`")))
    }
}

/// A batch is new as a whole, or was stored before as a whole, under the same ids.
fn is_torn(stored: &[Stored], ids: &[MessageId]) -> bool {
    let all_new = stored.iter().all(|stored| *stored == Stored::New);
    let known = |(stored, id): (&Stored, &MessageId)| *stored == Stored::Duplicate { of: *id };
    !all_new && !stored.iter().zip(ids).all(known)
}

fn messages(order: &Order, ids: &[MessageId]) -> Result<Vec<NewMessage>> {
    let places = 0_u32..;
    let message = |((message, id), place): ((&MessageOrder, &MessageId), u32)| {
        let work = Work::new(id.0, order.batch, place, message);
        let body = serde_json::to_vec(&work)
            .map_err(|why| Error::new(Code::NotSerialisable, "encode a message").because(why))?;
        let key = || format!("{}-{place}", order.batch);
        Ok(NewMessage {
            id: *id,
            kind: Some(message.kind.name().to_owned()),
            key: None,
            headers: millpond::Headers::new(),
            content_type: None,
            body,
            priority: CLASS,
            due: (message.delay_ms != 0).then(|| Due::In(Duration::from_millis(message.delay_ms))),
            attempts_max: message.kind.attempts_max(),
            retry_until: None,
            dedup: order.dedup.then(|| Dedup { key: key(), window: DEDUP_WINDOW }),
        })
    };
    order.messages.iter().zip(ids).zip(places).map(message).collect()
}

fn events(order: &Order, ids: &[MessageId], ph: Phase, err: Option<&str>) -> Vec<Event> {
    let event = |(message, id): (&MessageOrder, &MessageId)| Event {
        queue: Some(order.queue.clone()),
        id: Some(id.0),
        kind: Some(message.kind.name().to_owned()),
        val: Some(message.amount),
        err: err.map(str::to_owned),
        ..Event::new(0, Op::Send, ph)
    };
    order.messages.iter().zip(ids).map(event).collect()
}
