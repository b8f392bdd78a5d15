//! The run in which connections are scarce: workers with many handlers and one connection for all of them, in which each
//! handler holds its transaction for long. Calls find no connection, in the middle of everything that a worker does.
//! They must say which setting helps, nothing may be lost or doubled, and once the long ones are done it all goes on.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::child::{Notice, Running};
use crate::server::Server;
use crate::stage::{Ending, Stage};
use crate::wire::Report;
use crate::work::{EFFECTS, MessageOrder, Order, PLAIN};
use crate::worker::Setup;

const WORKERS: usize = 2;

/// What the handlers of a worker share, and how many they are.
const CONNECTIONS: usize = 1;
const SLOTS: usize = 30;

/// How long a handler holds its transaction: less than the limit of one, and so long that the last of the handlers waits
/// for longer than a call waits for a connection.
const HOLD_MS: u64 = 400;

/// Messages whose handlers hold a transaction, and others that come while connections are scarce.
const HOLDING: usize = 60;
const PLAIN_ONES: usize = 200;

/// Calls that find no connection, before it is believed that they are scarce.
const STARVED_MIN: u64 = 10;

/// How long that may take, and then everything until nothing is left.
const STARVED_LIMIT: Duration = Duration::from_secs(60);
const DRAIN_LIMIT: Duration = Duration::from_secs(180);

/// Calls that found no connection.
#[derive(Default)]
struct Starved {
    calls: u64,
    /// Those whose error did not name the setting.
    unnamed: u64,
}

impl Starved {
    fn hear(&mut self, notice: &Notice) -> Outcome<()> {
        match notice {
            Notice::Report(_, Report::Starved { named }) => {
                self.calls += 1;
                self.unnamed += u64::from(!named);
                Ok(())
            }
            Notice::Ended(node) => Err(format!("process {node} ended by itself").into()),
            Notice::Report(..) => Ok(()),
        }
    }
}

/// Runs it in `dir`.
pub(crate) fn run(server: &Arc<Server>, dir: &Path, seed: u64) -> Outcome<Ending> {
    let mut stage = Stage::set(server, dir, seed, &["scarce connections"], None)?;
    let mut sender = stage.sender()?;
    stage.limit_connections(CONNECTIONS);
    let setup = Setup { slots: SLOTS, hold_ms: HOLD_MS, ..Setup::default() };
    let mut children = (0..WORKERS).map(|_| stage.worker(setup)).collect::<Outcome<Vec<_>>>()?;
    let mut starved = Starved::default();

    order(&mut sender, 1, EFFECTS.name(), HOLDING)?;
    let until = Instant::now() + STARVED_LIMIT;
    while starved.calls < STARVED_MIN {
        if until < Instant::now() {
            return Err(format!("only {} calls found no connection", starved.calls).into());
        }
        if let Some(notice) = stage.notice(Duration::from_millis(100)) {
            starved.hear(&notice)?;
        }
    }
    order(&mut sender, 2, PLAIN.name(), PLAIN_ONES)?;
    let drained = stage.drained(DRAIN_LIMIT, |notice| starved.hear(&notice))?;
    children.push(sender);
    let mut ending = stage.close(children)?;
    ending.starved = starved.calls;
    if starved.unnamed != 0 {
        ending.faults.push(format!("{} errors did not name `?connections=`", starved.unnamed));
    }
    if !drained {
        ending.faults.push("it did not go on when connections were free again".to_owned());
    }
    Ok(ending)
}

/// Has a batch sent.
fn order(sender: &mut Running, batch: u64, queue: &str, messages: usize) -> Outcome<()> {
    let messages = vec![MessageOrder::steady(5); messages];
    sender.tell(&Order { batch, queue: queue.to_owned(), dedup: false, ids: Vec::new(), messages })
}
