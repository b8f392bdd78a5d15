//! How far a long command is: a bar, for a person who looks on.
//!
//! A bar is shown only if stderr is a terminal that can move its cursor and the output is a table; otherwise the
//! same calls do nothing.

use std::env;
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressStyle};

/// Whether the output of this process is for a person. Set once, before a command runs.
static FOR_A_PERSON: AtomicBool = AtomicBool::new(false);

/// Says whether the output is a table.
pub(crate) fn for_table(is_table: bool) {
    FOR_A_PERSON.store(is_table, Ordering::Relaxed);
}

/// Whether bars are shown.
pub(crate) fn is_shown() -> bool {
    let can_move = env::var_os("TERM").is_none_or(|term| term != "dumb");
    FOR_A_PERSON.load(Ordering::Relaxed) && io::stderr().is_terminal() && can_move
}

/// A bar. It goes away when it is finished or dropped.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar over `total` things, with a word for what is done to them: `redriving`.
    pub(crate) fn bar(total: u64, doing: &str) -> Self {
        Self::with(Some(total), doing, "{msg} {bar:30} {pos}/{len} {eta}")
    }

    /// A bar over `total` bytes; over an input of unknown length there is none.
    pub(crate) fn bytes(total: Option<u64>, doing: &str) -> Self {
        Self::with(total, doing, "{msg} {bar:30} {bytes}/{total_bytes} {eta}")
    }

    fn with(total: Option<u64>, doing: &str, template: &str) -> Self {
        let Some(total) = total.filter(|_| is_shown()) else { return Self(ProgressBar::hidden()) };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        Self(ProgressBar::new(total).with_style(style).with_message(doing.to_owned()))
    }

    /// So many more are done.
    pub(crate) fn advance(&self, done: u64) {
        self.0.inc(done);
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_that_nobody_sees_takes_the_same_calls() {
        for bar in [Progress::bar(3, "redriving"), Progress::bytes(None, "sending")] {
            bar.advance(1);
            bar.finish();
            bar.advance(1);
        }
        assert!(!is_shown(), "nobody said that the output is a table");
    }
}
