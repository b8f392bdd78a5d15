//! What a child tells its parent: one JSON object per line of its standard output.
//!
//! A line is written whole before the call returns, so what was reported happened before whatever the process
//! does next. A line that a kill cut short is not counted.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use millpond_testkit::judge::history::Event;
use serde::{Deserialize, Serialize};

use crate::transactions::Told;

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Report {
    /// What happened. The parent sets the times.
    Events(Vec<Event>),
    /// An order was answered.
    Answered {
        batch: u64,
        /// Whether it is stored; `None`: nobody knows.
        stored: Option<bool>,
        /// Some of a repeated batch were new and some were not.
        torn: bool,
    },
    /// All calls were made.
    Dropped {
        /// How many were given up before their answer.
        drops: u64,
    },
    /// A business transaction is about to begin.
    Begun { number: u64 },
    /// A business transaction is over.
    Told(Told),
    /// The message of a business row was delivered.
    Delivered { tag: u64 },
    /// A handler's transaction could not begin, because every connection was busy for too long.
    Starved {
        /// The error names the setting.
        named: bool,
    },
}

/// Exit code of a child whose parent is gone.
const ORPHANED: i32 = 3;

/// The child's end of the pipe.
#[derive(Debug, Default)]
pub(crate) struct Reporter {
    /// Reused from line to line.
    line: Mutex<Vec<u8>>,
}

impl Reporter {
    pub(crate) fn events(&self, events: Vec<Event>) {
        if !events.is_empty() {
            self.send(&Report::Events(events));
        }
    }

    pub(crate) fn send(&self, report: &Report) {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        line.clear();
        let mut stdout = std::io::stdout().lock();
        let written = serde_json::to_writer(&mut *line, report)
            .map_err(Into::into)
            .and_then(|()| {
                line.push(b'\n');
                stdout.write_all(&line)
            })
            .and_then(|()| stdout.flush());
        if written.is_err() {
            std::process::exit(ORPHANED);
        }
    }
}
