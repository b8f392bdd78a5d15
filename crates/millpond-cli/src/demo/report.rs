//! What a worker process tells the demo about each delivery: a line on its standard output. A line is written
//! before the handler returns and is not held back, so that a worker that dies has told of every delivery it began.

use millpond::MessageId;

/// How a delivery went, as its handler saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It began; another line will say how it went, unless the worker dies.
    Begun,
    /// It worked, and is acknowledged now.
    Worked,
    /// Its row was committed together with its acknowledgement.
    Booked,
    /// Its row had been committed by an earlier delivery.
    BookedBefore,
    /// It worked, but came before it was due.
    CameEarly,
    /// It failed, as it should.
    Failed,
    /// It failed, and should not have.
    Trouble,
    /// It kills its worker now.
    Kills,
}

const LETTERS: [(Outcome, &str); 8] = [
    (Outcome::Begun, "s"),
    (Outcome::Worked, "a"),
    (Outcome::Booked, "b"),
    (Outcome::BookedBefore, "d"),
    (Outcome::CameEarly, "y"),
    (Outcome::Failed, "f"),
    (Outcome::Trouble, "t"),
    (Outcome::Kills, "k"),
];

impl Outcome {
    /// Whether the handler said that the message is done.
    pub(crate) const fn is_done(self) -> bool {
        matches!(self, Self::Worked | Self::Booked | Self::BookedBefore | Self::CameEarly)
    }

    fn letter(self) -> &'static str {
        LETTERS.iter().find(|(outcome, _)| *outcome == self).map_or("?", |(_, letter)| letter)
    }
}

/// One line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report {
    /// Of which message.
    pub(crate) id: MessageId,
    /// Of which attempt, counted from 1.
    pub(crate) attempt: u32,
    /// How it went.
    pub(crate) outcome: Outcome,
}

impl Report {
    /// The line, with its end.
    pub(crate) fn line(&self) -> String {
        format!("{} {} {}\n", self.outcome.letter(), self.id, self.attempt)
    }

    /// Reads a line. `None`: a worker died while it wrote it, or it is none of ours.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let line = line.strip_suffix('\n')?;
        let mut words = line.split(' ');
        let letter = words.next()?;
        let (outcome, _) = *LETTERS.iter().find(|(_, known)| *known == letter)?;
        let id = words.next()?.parse().ok()?;
        let attempt = words.next()?.parse().ok()?;
        words.next().is_none().then_some(Self { id, attempt, outcome })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0198c0de-0000-7000-8000-000000000007";

    #[test]
    fn a_line_is_read_as_it_was_written() {
        for (outcome, _) in LETTERS {
            let report = Report { id: ID.parse().unwrap(), attempt: 12, outcome };
            assert_eq!(Report::parse(&report.line()), Some(report));
        }
    }

    #[test]
    fn a_torn_or_foreign_line_is_none() {
        for line in
            ["", "\n", "a", &format!("a {ID} 1"), &format!("q {ID} 1\n"), "a x 1\n", &format!("a {ID} 1 2\n")]
        {
            assert_eq!(Report::parse(line), None, "{line:?}");
        }
    }
}
