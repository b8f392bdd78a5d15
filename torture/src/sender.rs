//! The role of a sender: sends the batches that its parent names, one after the other.
//!
//! It makes the ids itself and reports them before it calls the store, so that a batch whose sender was killed is
//! known.

use std::collections::HashMap;
use std::io::BufRead;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond::{Due, IdSource, Store, Stored};
use millpond_core::error::{Code, Error, ErrorKind, Result};
use millpond_core::message::{Dedup, MessageId, NewMessage};
use millpond_core::store::QueueId;
use millpond_testkit::judge::history::{Event, Op, Phase};

use crate::database::{is_away, open_patiently};
use crate::wire::{Report, Reporter};
use crate::work::{MessageOrder, Order, Work};

const DEDUP_WINDOW: Duration = Duration::from_secs(3_600);

/// How long a queue is asked for while the server is away.
const LOOK_LIMIT: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The priority class of a message that names none.
const CLASS: u8 = millpond_core::queue::CLASS_DEFAULT;

/// Sends until its parent closes the pipe.
pub(crate) fn run(url: &str) -> Result<()> {
    let failed = |error: std::io::Error| Error::new(Code::Internal, "start a sender").because(error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let mut sender = Sender {
        store: runtime.block_on(open_patiently(url))?,
        ids: IdSource::new(),
        queues: HashMap::new(),
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
    store: Arc<dyn Store>,
    ids: IdSource,
    /// Looked up once, so that a send is nothing but a send.
    queues: HashMap<String, QueueId>,
    reporter: Reporter,
}

impl Sender {
    async fn obey(&mut self, order: Order) -> Result<()> {
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

    async fn queue(&mut self, name: &str) -> Result<QueueId> {
        if let Some(known) = self.queues.get(name) {
            return Ok(*known);
        }
        let queue = look_up(&*self.store, name).await?;
        self.queues.insert(name.to_owned(), queue);
        Ok(queue)
    }
}

/// Looks a queue up; a server that is away is waited for.
pub(crate) async fn look_up(store: &dyn Store, name: &str) -> Result<QueueId> {
    let until = Instant::now() + LOOK_LIMIT;
    let found = loop {
        match store.queue(name.to_owned()).await {
            Err(error) if is_away(&error) && Instant::now() < until => tokio::time::sleep(LOOK_AGAIN).await,
            found => break found?,
        }
    };
    found
        .map(|queue| queue.id)
        .ok_or_else(|| Error::new(Code::UnknownQueue, format!("look up queue `{name}`")))
}

/// A batch is new as a whole, or was stored before as a whole, under the same ids.
fn is_torn(stored: &[Stored], ids: &[MessageId]) -> bool {
    let all_new = stored.iter().all(|stored| *stored == Stored::New);
    let known = |(stored, id): (&Stored, &MessageId)| *stored == Stored::Duplicate { of: *id };
    !all_new && !stored.iter().zip(ids).all(known)
}

pub(crate) fn messages(order: &Order, ids: &[MessageId]) -> Result<Vec<NewMessage>> {
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

pub(crate) fn events(order: &Order, ids: &[MessageId], ph: Phase, err: Option<&str>) -> Vec<Event> {
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
