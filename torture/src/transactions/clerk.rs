//! The role of a clerk: carries out business transactions, several at once, and tells its parent of each, before and after.

use std::cell::Cell;
use std::rc::Rc;

use millpond::Pond;
use millpond_core::error::{Code, Error, Result};
use tokio::task::LocalSet;

use crate::database::{Database, open_patiently};
use crate::transactions::announcement::{NOTES, ORDERS};
use crate::transactions::bug::Bug;
use crate::transactions::course::{COURSE_LIMIT, Lines, Place};
use crate::transactions::errand::{Errand, at_once};
use crate::wire::{Report, Reporter};

/// Which transactions it carries out.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Share {
    /// The number of the first one.
    #[arg(long)]
    pub(crate) first: u64,
    /// From one number to the next.
    #[arg(long)]
    pub(crate) step: u64,
    /// No number is this or higher.
    #[arg(long)]
    pub(crate) end: u64,
    #[arg(long)]
    pub(crate) seed: u64,
}

/// What its courses share.
struct Clerk {
    place: Place,
    share: Share,
    next: Cell<u64>,
    reporter: Reporter,
}

/// Carries out its share, and ends.
pub(crate) fn run(url: &str, share: Share) -> Result<()> {
    let failed = |error: std::io::Error| Error::new(Code::Internal, "start a clerk").because(error);
    // The transactions of rusqlite stay on one thread and block it; what the pond does by itself has another.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(failed)?;
    LocalSet::new().block_on(&runtime, async {
        let pond = Pond::with_store(open_patiently(url).await?);
        pond.declare(&ORDERS).await?;
        pond.declare(&NOTES).await?;
        let place = Place { pond: pond.clone(), url: url.to_owned(), bug: Bug::chosen() };
        let next = Cell::new(share.first);
        let clerk = Rc::new(Clerk { place, share, next, reporter: Reporter::default() });
        let begin = |_| {
            let clerk = Rc::clone(&clerk);
            tokio::task::spawn_local(async move { clerk.go_on().await })
        };
        let begun: Vec<_> = (0..at_once(Database::of(url))).map(begin).collect();
        for course in begun {
            course
                .await
                .map_err(|why| Error::new(Code::Internal, "carry out transactions").because(why))??;
        }
        pond.close().await;
        Ok(())
    })
}

impl Clerk {
    async fn go_on(&self) -> Result<()> {
        let mut lines = Lines::default();
        loop {
            let number = self.next.get();
            if self.share.end <= number {
                return Ok(());
            }
            self.next.set(number + self.share.step);
            let errand = Errand::new(self.share.seed, Database::of(&self.place.url), number);
            self.reporter.send(&Report::Begun { number });
            let course = self.place.carry_out(&errand, &mut lines);
            let failed =
                |why: String| Error::new(Code::Internal, format!("carry out {errand:?}")).because(why);
            let told = tokio::time::timeout(COURSE_LIMIT, course)
                .await
                .map_err(|late| failed(late.to_string()))?
                .map_err(|refusal| failed(refusal.to_string()))?;
            self.reporter.send(&Report::Told(told));
        }
    }
}
