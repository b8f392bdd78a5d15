//! How one business transaction runs, to the end that its errand says.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use millpond::Pond;

use crate::database::Database;
use crate::transactions::announcement::{Announcement, NOTES, has_own_queue};
use crate::transactions::audit::Told;
use crate::transactions::bug::Bug;
use crate::transactions::errand::{Errand, Means, Way};
use crate::transactions::open::{Isolation, Line, Open};
use crate::transactions::refusal::{Done, Refusal};

/// What the courses of a process share.
pub(crate) struct Place {
    pub(crate) pond: Pond,
    pub(crate) url: String,
    pub(crate) bug: Option<Bug>,
}

/// The connections of one course after the other.
#[derive(Default)]
pub(crate) struct Lines {
    own: Option<Line>,
    partner: Option<Line>,
}

/// What is known of a commit.
pub(crate) enum Answer {
    Yes,
    No,
    Unknown,
}

impl Place {
    pub(crate) fn database(&self) -> Database {
        Database::of(&self.url)
    }

    /// Runs it, and tells what became of it.
    pub(crate) async fn carry_out(&self, errand: &Errand, lines: &mut Lines) -> Done<Told> {
        let mut told = Told { number: errand.number, way: errand.way, there: Vec::new(), gone: Vec::new() };
        match self.follow(errand, lines, &mut told).await {
            Ok(()) => Ok(told),
            // It met a transaction of somebody else. A program would begin again; here the next one does.
            Err(refusal) if refusal.is_conflict => {
                tracing::debug!(%refusal, ?errand, "a conflict that was not planned");
                *lines = Lines::default();
                Ok(Told { way: Way::Serialisation, there: Vec::new(), gone: Vec::new(), ..told })
            }
            Err(refusal) => Err(refusal),
        }
    }

    async fn follow(&self, errand: &Errand, lines: &mut Lines, told: &mut Told) -> Done<()> {
        if lines.own.is_none() {
            lines.own = Some(Line::open(&self.url).await?);
        }
        if lines.partner.is_none() {
            lines.partner = Some(Line::open(&self.url).await?);
        }
        let (Some(own), Some(partner)) = (&mut lines.own, &mut lines.partner) else { return Ok(()) };
        match errand.way {
            Way::Commit => self.commit(errand, own, told).await,
            Way::Error => self.fail(errand, own, told).await,
            Way::Dropped => {
                self.drop_it(errand, own).await?;
                told.gone = errand.tags();
                // In the middle of an answer that driver does not know any more where it is.
                lines.own.take_if(|own| matches!(own, Line::Mysql(_)));
                Ok(())
            }
            Way::Killed => self.die(errand, own, told).await,
            Way::Savepoint => self.undo_savepoint(errand, own, told).await,
            Way::Deadlock | Way::Serialisation if self.database() == Database::Sqlite => {
                self.be_late_for_the_writer(errand, own, partner, told).await
            }
            Way::Deadlock => self.lock_crosswise(errand, own, partner, told).await,
            Way::Serialisation => self.read_what_changes(errand, own, partner, told).await,
        }
    }

    pub(crate) async fn begin<'a>(
        &'a self,
        line: &'a mut Line,
        means: Means,
        isolation: Isolation,
    ) -> Done<Open<'a>> {
        Open::begin(&self.pond, &self.url, line, means, isolation).await
    }

    async fn commit(&self, errand: &Errand, own: &mut Line, told: &mut Told) -> Done<()> {
        self.send_too_early(errand).await?;
        let mut open = self.begin(own, errand.means, Isolation::Usual).await?;
        self.put_all(errand, &mut open).await?;
        // One who goes away while it is committed: the commit runs to its end all the same.
        if open.is_unit() && errand.polls == 1 && self.bug.is_none() {
            let _ = poll_at_most(errand.polls, open.commit()).await;
            return Ok(());
        }
        let answer = self.end(open, Ok(()), false).await?;
        told.add(errand.tags(), &answer);
        self.send_too_late(errand).await
    }

    /// A statement fails, or the program changes its mind, or a hook refuses.
    async fn fail(&self, errand: &Errand, own: &mut Line, told: &mut Told) -> Done<()> {
        self.send_too_early(errand).await?;
        let mut open = self.begin(own, errand.means, Isolation::Usual).await?;
        // In Postgres nothing can be committed after an error, and the server says yes to a program that tries it.
        let is_reckless = errand.other_course && open.is_unit() && self.database() == Database::Postgres;
        if is_reckless && errand.polls.is_multiple_of(2) {
            open.write(errand.tags()[0]).await?;
        } else {
            self.put_all(errand, &mut open).await?;
        }
        if self.bug == Some(Bug::SentAfterCommit) {
            // The error comes between the commit and the send.
            return open.commit().await;
        }
        told.gone = errand.tags();
        let must_be_refused = if errand.other_course {
            if open.write(errand.tags()[0]).await.is_ok() {
                return Err(Refusal::of("a row was written twice"));
            }
            is_reckless
        } else {
            open.refuse()
        };
        if !must_be_refused {
            return open.roll_back().await;
        }
        match open.commit().await {
            Ok(()) => Err(Refusal::of("a commit that must be refused was answered with yes")),
            Err(_) => Ok(()),
        }
    }

    async fn drop_it(&self, errand: &Errand, own: &mut Line) -> Done<()> {
        self.send_too_early(errand).await?;
        let course = async {
            let mut open = self.begin(own, errand.means, Isolation::Usual).await?;
            self.put_all(errand, &mut open).await?;
            Done::Ok(open)
        };
        match poll_at_most(errand.polls, course).await {
            Some(Err(refusal)) => Err(refusal),
            Some(Ok(open)) => {
                drop(open);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The process dies, in the middle or while it commits.
    async fn die(&self, errand: &Errand, own: &mut Line, told: &mut Told) -> Done<()> {
        self.send_too_early(errand).await?;
        let mut open = self.begin(own, errand.means, Isolation::Usual).await?;
        self.put_all(errand, &mut open).await?;
        let Some(after) = errand.dies_after else { return Err(kill_this_process()) };
        std::thread::spawn(move || {
            std::thread::sleep(after);
            kill_this_process()
        });
        let answer = self.end(open, Ok(()), false).await?;
        told.way = Way::Commit;
        told.add(errand.tags(), &answer);
        Ok(())
    }

    async fn undo_savepoint(&self, errand: &Errand, own: &mut Line, told: &mut Told) -> Done<()> {
        let mut open = self.begin(own, errand.means, Isolation::Usual).await?;
        self.put_all(errand, &mut open).await?;
        if self.bug == Some(Bug::SentAroundSavepoint) {
            open.send(errand.frame()).await?;
        }
        open.put_in_vain(errand.frame(), errand.other_course).await?;
        told.gone.push(errand.frame());
        let answer = self.end(open, Ok(()), false).await?;
        told.add(errand.tags(), &answer);
        self.send_too_late(errand).await
    }

    /// Commits it if all went well. After a conflict a program rolls back; a reckless one commits, and is refused.
    pub(crate) async fn end(&self, open: Open<'_>, went: Done<()>, is_reckless: bool) -> Done<Answer> {
        match went {
            Ok(()) => match open.commit().await {
                Ok(()) => Ok(Answer::Yes),
                Err(refusal) if refusal.is_conflict => Ok(Answer::No),
                Err(refusal) => {
                    tracing::warn!(%refusal, "nobody knows whether it was committed");
                    Ok(Answer::Unknown)
                }
            },
            Err(refusal) if !refusal.is_conflict => Err(refusal),
            Err(refusal) if is_reckless && open.is_unit() && refusal.ended_the_transaction() => {
                match open.commit().await {
                    Ok(()) => Err(Refusal::of("a commit after a conflict was answered with yes")),
                    Err(_) => Ok(Answer::No),
                }
            }
            Err(_) => open.roll_back().await.map(|()| Answer::No),
        }
    }

    pub(crate) async fn put_all(&self, errand: &Errand, open: &mut Open<'_>) -> Done<()> {
        let sends_beside = matches!(self.bug, Some(Bug::SentOutside | Bug::SentAfterCommit));
        for tag in errand.tags() {
            if sends_beside && !has_own_queue(tag) {
                open.write(tag).await?;
            } else {
                open.put(tag).await?;
            }
        }
        Ok(())
    }

    async fn send_too_early(&self, errand: &Errand) -> Done<()> {
        if self.bug == Some(Bug::SentOutside) { self.send_beside(errand).await } else { Ok(()) }
    }

    async fn send_too_late(&self, errand: &Errand) -> Done<()> {
        if self.bug == Some(Bug::SentAfterCommit) { self.send_beside(errand).await } else { Ok(()) }
    }

    async fn send_beside(&self, errand: &Errand) -> Done<()> {
        for tag in errand.tags().into_iter().filter(|tag| !has_own_queue(*tag)) {
            self.pond.send(&NOTES, [Announcement { tag }]).await?;
        }
        Ok(())
    }
}

impl Told {
    pub(crate) fn add(&mut self, tags: Vec<u64>, answer: &Answer) {
        match answer {
            Answer::Yes => self.there.extend(tags),
            Answer::No => self.gone.extend(tags),
            Answer::Unknown => {}
        }
    }
}

/// Polls a future so often, and drops it.
async fn poll_at_most<T>(polls: u64, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut left) = (pin!(future), polls);
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending if left <= 1 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// `kill -9`, of itself.
fn kill_this_process() -> Refusal {
    use rustix::process::{Signal, getpid, kill_process};
    let _ = kill_process(getpid(), Signal::KILL);
    Refusal::of("the process outlived its own kill")
}

/// How long one transaction may take.
pub(crate) const COURSE_LIMIT: Duration = Duration::from_secs(60);
