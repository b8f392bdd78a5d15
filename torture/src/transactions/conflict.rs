//! Business transactions that meet another one: two are open at once, and one of them is refused.

use crate::database::Database;
use crate::transactions::audit::Told;
use crate::transactions::course::{Answer, Place};
use crate::transactions::errand::{Errand, Means, Way};
use crate::transactions::open::{Isolation, Line, Open};
use crate::transactions::refusal::Done;

/// So that Postgres soon looks for a deadlock, from the side of this transaction.
const LOOK_SOON: &str = "set local deadlock_timeout = '10ms'";

impl Place {
    /// Two transactions lock two rows in opposite order. One of them is rolled back by the server.
    pub(crate) async fn lock_crosswise(
        &self,
        errand: &Errand,
        own: &mut Line,
        partner: &mut Line,
        told: &mut Told,
    ) -> Done<()> {
        let (first, second) = errand.accounts();
        let mut one = self.begin(own, errand.means, Isolation::Usual).await?;
        let mut other = self.begin(partner, Means::Driver, Isolation::Usual).await?;
        if self.database() == Database::Postgres {
            // The one that looks first is the one that is rolled back.
            let looks = if errand.polls.is_multiple_of(2) { &mut one } else { &mut other };
            looks.run(LOOK_SOON).await?;
        }
        self.put_all(errand, &mut one).await?;
        other.put(errand.partner()).await?;
        one.change(first).await?;
        other.change(second).await?;
        let course = async |mut open: Open<'_>, account, is_reckless| {
            let changed = open.change(account).await;
            self.end(open, changed, is_reckless).await
        };
        let (one, other) =
            tokio::join!(course(one, second, errand.other_course), course(other, first, false));
        tell_of_both(errand, &one?, &other?, told);
        Ok(())
    }

    /// What the one has read is changed by the other; or each reads what the other changes; or the one waits for no lock.
    pub(crate) async fn read_what_changes(
        &self,
        errand: &Errand,
        own: &mut Line,
        partner: &mut Line,
        told: &mut Told,
    ) -> Done<()> {
        let (first, second) = errand.accounts();
        let is_skew = errand.other_course && self.database() == Database::Postgres;
        // A unit of work reads what is committed, and so is never too late.
        let is_locked = errand.means == Means::Unit || errand.other_course && !is_skew;
        let isolation = if is_skew { Isolation::Serialisable } else { Isolation::Snapshot };
        let mut one = self.begin(own, errand.means, isolation).await?;
        one.read(first).await?;
        self.put_all(errand, &mut one).await?;
        let mut other = self.begin(partner, Means::Driver, isolation).await?;
        other.read(second).await?;
        other.put(errand.partner()).await?;
        other.change(first).await?;
        if is_locked {
            let locked = one.lock_at_once(first).await;
            let one = self.end(one, locked, errand.other_course).await?;
            tell_of_both(errand, &one, &self.end(other, Ok(()), false).await?, told);
            return Ok(());
        }
        let other = self.end(other, Ok(()), false).await?;
        let changed = one.change(if is_skew { second } else { first }).await;
        let one = self.end(one, changed, errand.other_course).await?;
        tell_of_both(errand, &one, &other, told);
        Ok(())
    }

    /// SQLite has no deadlock: who writes when another does is busy, who has read before another wrote is too late. A
    /// send that is refused so leaves nothing behind.
    pub(crate) async fn be_late_for_the_writer(
        &self,
        errand: &Errand,
        own: &mut Line,
        partner: &mut Line,
        told: &mut Told,
    ) -> Done<()> {
        let mut one = self.begin(own, errand.means, Isolation::Snapshot).await?;
        one.read(0).await?;
        let mut other = self.begin(partner, Means::Driver, Isolation::Usual).await?;
        other.put(errand.partner()).await?;
        let tag = errand.tags()[0];
        let write = async |mut one: Open<'_>| {
            let put = if errand.other_course { one.send(tag).await } else { one.put(tag).await };
            self.end(one, put, false).await
        };
        let (one, other) = if errand.way == Way::Deadlock {
            (write(one).await?, self.end(other, Ok(()), false).await?)
        } else {
            let other = self.end(other, Ok(()), false).await?;
            (write(one).await?, other)
        };
        tell_of_both(errand, &one, &other, told);
        Ok(())
    }
}

fn tell_of_both(errand: &Errand, one: &Answer, other: &Answer, told: &mut Told) {
    if !matches!(one, Answer::No) && !matches!(other, Answer::No) {
        // The one did not come in the way of the other.
        told.way = Way::Commit;
    }
    told.add(errand.tags(), one);
    told.add(vec![errand.partner()], other);
}
