//! What the store holds when a demo is over: counts, dead letters, and the rows that bookings wrote.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use millpond::query::{Field, Query};
use millpond::sqlite::rusqlite::{self, Connection};
use millpond::view::{Find, QueueView};
use millpond::{Code, Error, MessageId, Pond, Result};

use crate::demo::check::{Counts, Held};
use crate::demo::workload::Kind;

/// Dead letters of one page.
const PAGE_ROWS: usize = 1_000;

/// How long a statement on the table of effects waits for the workers' writes.
const BUSY_LIMIT: Duration = Duration::from_secs(10);

/// Without a unique constraint, so that an effect that happened twice shows.
const EFFECT_TABLE: &str = "create table if not exists demo_effect \
     (message_id blob not null, life integer not null, attempt integer not null)";

/// Makes the table that bookings write to.
pub(crate) async fn make_effect_table(path: &Path) -> Result<()> {
    on_file(path, "make the table of effects", |db| db.execute_batch(EFFECT_TABLE)).await
}

/// Looks at all that is left of a demo that began with these counts.
pub(crate) async fn collect(pond: &Pond, path: &Path, before: &BTreeMap<Kind, Counts>) -> Result<Held> {
    let mut counts = counts(&pond.store().queues().await?);
    for (kind, counts) in &mut counts {
        let before = before.get(kind).copied().unwrap_or_default();
        counts.sent = counts.sent.saturating_sub(before.sent);
        counts.done = counts.done.saturating_sub(before.done);
        counts.dead = counts.dead.saturating_sub(before.dead);
    }
    let mut dead_letters = Vec::new();
    for kind in Kind::ALL {
        dead_letters.extend(dead_letters_of(pond, kind).await?);
    }
    let effects = on_file(path, "read the table of effects", effects).await?;
    Ok(Held { counts, dead_letters, effects })
}

/// The counts of the demo's queues.
pub(crate) fn counts(queues: &[QueueView]) -> BTreeMap<Kind, Counts> {
    let of = |kind: Kind| {
        let queue = queues.iter().find(|queue| queue.name == kind.queue().name())?;
        let open = queue.ready + queue.leased + queue.retrying + queue.scheduled;
        Some((kind, Counts { sent: queue.sent, done: queue.done, dead: queue.dead, open }))
    };
    Kind::ALL.into_iter().filter_map(of).collect()
}

async fn dead_letters_of(pond: &Pond, kind: Kind) -> Result<Vec<(MessageId, String)>> {
    let query = Query::default().and(Field::Queue, [kind.queue().name().to_owned()]);
    let mut find = Find { query, rows_max: PAGE_ROWS, ..Find::default() };
    let mut all = Vec::new();
    loop {
        let page = pond.store().dead_letters(find.clone()).await?;
        all.extend(page.items.into_iter().map(|letter| (letter.id, letter.reason)));
        find.after = page.next;
        if find.after.is_none() {
            return Ok(all);
        }
    }
}

fn effects(db: &Connection) -> rusqlite::Result<Vec<MessageId>> {
    let mut all = db.prepare("select message_id from demo_effect")?;
    all.query_map([], |row| Ok(MessageId(row.get(0)?)))?.collect()
}

/// Runs statements on a connection of our own: the table is none of the store's.
async fn on_file<T: Send + 'static>(
    path: &Path,
    doing: &'static str,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
) -> Result<T> {
    let path: PathBuf = path.to_owned();
    let on_file = move || {
        let db = Connection::open(path)?;
        db.busy_timeout(BUSY_LIMIT)?;
        work(&db)
    };
    let done = tokio::task::spawn_blocking(on_file).await;
    let done = done.map_err(|error| Error::new(Code::Internal, doing).because(error))?;
    done.map_err(|error| Error::new(Code::StoreUnavailable, doing).because(error))
}
