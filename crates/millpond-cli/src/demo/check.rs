//! The self-check of a demo: what was sent, what the workers told, what the store says and the rows that were
//! written must agree, id by id. Pure.

use std::collections::{BTreeMap, HashMap, HashSet};

use millpond::MessageId;

use crate::demo::ledger::{Cause, Delivery, Ledger, Life};
use crate::demo::report::Outcome;
use crate::demo::workload::Kind;

/// Faults named in a sentence, before "and more".
const NAMED_MAX: usize = 3;

/// What the store says of one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// Stored.
    pub(crate) sent: u64,
    /// Acknowledged.
    pub(crate) done: u64,
    /// Dead letters.
    pub(crate) dead: u64,
    /// Ready, leased, scheduled or retrying.
    pub(crate) open: u64,
}

/// What the store holds when all is over.
#[derive(Debug, Clone, Default)]
pub(crate) struct Held {
    /// By kind, without what was there before the demo.
    pub(crate) counts: BTreeMap<Kind, Counts>,
    /// Id and reason of each dead letter.
    pub(crate) dead_letters: Vec<(MessageId, String)>,
    /// The message of each row that a booking wrote.
    pub(crate) effects: Vec<MessageId>,
}

/// The sums of one kind, or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Row {
    /// Messages sent.
    pub(crate) sent: u64,
    /// Of them, done: a worker said so, or its row is there.
    pub(crate) done: u64,
    /// Of them, dead letters.
    pub(crate) dead: u64,
    /// Of them, neither.
    pub(crate) lost: u64,
    /// Handlers that were started.
    pub(crate) deliveries: u64,
    /// Deliveries of a message that had not failed.
    pub(crate) duplicates: u64,
}

/// One sentence of the self-check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Whether it is as it should be.
    pub(crate) holds: bool,
    /// What was found.
    pub(crate) sentence: String,
}

/// The outcome of a demo.
#[derive(Debug, Clone)]
pub(crate) struct Audit {
    /// Every kind that was sent.
    pub(crate) rows: BTreeMap<Kind, Row>,
    /// All kinds together.
    pub(crate) total: Row,
    /// In the order in which they are read.
    pub(crate) findings: Vec<Finding>,
}

impl Audit {
    /// Whether everything is as it should be.
    pub(crate) fn holds(&self) -> bool {
        self.findings.iter().all(|finding| finding.holds)
    }
}

/// Compares what the demo knows with what the store holds.
pub(crate) fn audit(ledger: &Ledger, held: &Held) -> Audit {
    let books = Books::new(ledger, held);
    let mut rows: BTreeMap<Kind, Row> = BTreeMap::new();
    for (id, kind) in &ledger.sent {
        rows.entry(*kind).or_default().add(&books.row(id));
    }
    let mut total = Row::default();
    rows.values().for_each(|row| total.add(row));
    let findings = vec![
        books.counts(&rows, &total),
        books.one_end_each(&total),
        books.dead_letters(&total),
        books.effects(),
        books.duplicates(&total),
        books.deaths(),
        books.delays(),
    ];
    Audit { rows, total, findings }
}

impl Row {
    fn add(&mut self, other: &Row) {
        self.sent += other.sent;
        self.done += other.done;
        self.dead += other.dead;
        self.lost += other.lost;
        self.deliveries += other.deliveries;
        self.duplicates += other.duplicates;
    }
}

/// Both sides, by id.
struct Books<'a> {
    ledger: &'a Ledger,
    held: &'a Held,
    dead: HashMap<MessageId, &'a str>,
    rows_written: HashMap<MessageId, usize>,
    dead_lives: HashSet<Life>,
}

impl<'a> Books<'a> {
    fn new(ledger: &'a Ledger, held: &'a Held) -> Self {
        let mut rows_written = HashMap::new();
        for id in &held.effects {
            *rows_written.entry(*id).or_default() += 1;
        }
        let dead = held.dead_letters.iter().map(|(id, reason)| (*id, reason.as_str())).collect();
        Self { ledger, held, dead, rows_written, dead_lives: ledger.dead_lives() }
    }

    fn deliveries(&self, id: &MessageId) -> &'a [Delivery] {
        self.ledger.deliveries.get(id).map_or(&[], Vec::as_slice)
    }

    /// A row is committed together with the acknowledgement, so it proves it.
    fn is_done(&self, id: &MessageId) -> bool {
        self.rows_written.contains_key(id)
            || self.deliveries(id).iter().any(|delivery| delivery.outcome.is_done())
    }

    fn row(&self, id: &MessageId) -> Row {
        let deliveries = self.deliveries(id);
        let (done, dead) = (self.is_done(id), self.dead.contains_key(id));
        Row {
            sent: 1,
            done: done.into(),
            dead: dead.into(),
            lost: (!done && !dead).into(),
            deliveries: deliveries.len() as u64,
            duplicates: duplicates(deliveries).count() as u64,
        }
    }

    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &'a MessageId> {
        self.ledger.sent.iter().filter(move |(_, other)| *other == kind).map(|(id, _)| id)
    }

    fn counts(&self, rows: &BTreeMap<Kind, Row>, total: &Row) -> Finding {
        let wrong = rows.iter().filter_map(|(kind, row)| {
            let counts = self.held.counts.get(kind).copied().unwrap_or_default();
            let Counts { sent, done, dead, open } = counts;
            let expected = Counts { sent: row.sent, done: row.done, dead: row.dead, open: 0 };
            let shown =
                format!("`{}` has sent {sent}, done {done}, dead {dead}, open {open}", kind.queue().name());
            (counts != expected).then_some(shown)
        });
        let fine = format!(
            "sent {} = done {} + dead {}, as the store counts and as we count",
            total.sent, total.done, total.dead
        );
        finding(wrong, fine, "the store counts differently")
    }

    fn one_end_each(&self, total: &Row) -> Finding {
        let wrong = self.ledger.sent.iter().filter_map(|(id, _)| {
            match (self.is_done(id), self.dead.contains_key(id)) {
                (false, false) => Some(format!("{id} is lost")),
                (true, true) => Some(format!("{id} is done and a dead letter")),
                _ => None,
            }
        });
        let fine =
            format!("nothing is lost: each of {} ids is done or a dead letter, and none is both", total.sent);
        finding(wrong, fine, "ids without exactly one end")
    }

    fn dead_letters(&self, total: &Row) -> Finding {
        let wrong = self.ledger.sent.iter().filter_map(|(id, kind)| {
            let (expected, found) = (kind.dies_of(), self.dead.get(id).copied());
            (expected != found).then(|| {
                let (expected, found) =
                    (expected.unwrap_or("no dead letter"), found.unwrap_or("no dead letter"));
                format!("{id} ({}) should be: {expected}, is: {found}", kind.queue().name())
            })
        });
        let fine = format!(
            "the {} dead letters are what always fails and what kills, each with its reason",
            total.dead
        );
        finding(wrong, fine, "wrong dead letters")
    }

    fn effects(&self) -> Finding {
        let wrong = self.of_kind(Kind::Booking).filter_map(|id| {
            match self.rows_written.get(id).copied().unwrap_or(0) {
                1 => None,
                rows => Some(format!("{id} wrote {rows} rows")),
            }
        });
        let fine = format!("{} bookings wrote exactly one row each", self.of_kind(Kind::Booking).count());
        finding(wrong, fine, "bookings without exactly one row")
    }

    fn duplicates(&self, total: &Row) -> Finding {
        let wrong = self.ledger.sent.iter().filter_map(|(id, _)| {
            let unexplained =
                duplicates(self.deliveries(id)).find(|(before, _)| !self.dead_lives.contains(&before.life));
            unexplained.map(|(_, again)| format!("{id} came again as attempt {}", again.attempt))
        });
        let fine = match total.duplicates {
            0 => "no message came twice without having failed".to_owned(),
            count => format!("{count} deliveries were repeats, each of one that died with its worker"),
        };
        finding(
            wrong,
            fine,
            "repeats although the worker lived (a machine that stalls for 2 s costs it its lease)",
        )
    }

    fn deaths(&self) -> Finding {
        let kills = |id| self.ledger.sent.contains(&(id, Kind::Killer));
        let wrong = self.ledger.deaths.iter().filter_map(|(life, cause)| match cause {
            Cause::Demo => None,
            Cause::Message(id) if kills(*id) => None,
            _ => Some(format!("process {}", life.0)),
        });
        let by_demo = self.ledger.deaths.iter().filter(|(_, cause)| *cause == Cause::Demo).count();
        let all = self.ledger.deaths.len();
        let fine =
            format!("{all} workers died: {by_demo} by our signal, {} by a message that kills", all - by_demo);
        finding(wrong, fine, "workers that died of something else")
    }

    fn delays(&self) -> Finding {
        let early = |delivery: &Delivery| delivery.outcome == Outcome::CameEarly;
        let wrong = self
            .of_kind(Kind::Delayed)
            .filter(|id| self.deliveries(id).iter().any(early))
            .map(|id| format!("{id} came early"));
        let fine = format!(
            "none of {} delayed messages came before it was due",
            self.of_kind(Kind::Delayed).count()
        );
        finding(wrong, fine, "delayed messages that came early")
    }
}

/// Deliveries, each with the one before it, of a message that had not failed: not by its handler, and not by
/// killing its worker.
fn duplicates(deliveries: &[Delivery]) -> impl Iterator<Item = (&Delivery, &Delivery)> {
    deliveries.windows(2).map(|pair| (&pair[0], &pair[1])).filter(|(before, again)| match before.outcome {
        Outcome::Failed | Outcome::Trouble => again.attempt <= before.attempt,
        Outcome::Kills => false,
        _ => true,
    })
}

fn finding(wrong: impl Iterator<Item = String>, fine: String, title: &str) -> Finding {
    let wrong: Vec<String> = wrong.collect();
    if wrong.is_empty() {
        return Finding { holds: true, sentence: fine };
    }
    let named = wrong[..wrong.len().min(NAMED_MAX)].join("; ");
    let more = if NAMED_MAX < wrong.len() { "; and more" } else { "" };
    Finding { holds: false, sentence: format!("{} {title}: {named}{more}", wrong.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::report::Report;

    const KILLED: Life = Life(1);
    const LIVES: Life = Life(2);

    fn id(number: u32) -> MessageId {
        format!("0198c0de-0000-7000-8000-{number:012}").parse().unwrap()
    }

    /// A demo of one message of each kind, in which all went well and a worker was killed.
    struct Case {
        ledger: Ledger,
        held: Held,
    }

    impl Case {
        fn good() -> Self {
            let mut case = Self { ledger: Ledger::default(), held: Held::default() };
            for (number, kind) in (0..).zip(Kind::ALL) {
                case.ledger.sent(kind, [id(number)].into_iter());
                let dead = u64::from(kind.dies_of().is_some());
                case.held.counts.insert(kind, Counts { sent: 1, done: 1 - dead, dead, open: 0 });
            }
            let killer = Case::id_of(Kind::Killer);
            case.ledger.died(KILLED, Cause::Demo);
            case.ledger.died(Life(3), Cause::Message(killer));
            case.tell(Kind::Work, LIVES, 1, Outcome::Worked);
            case.tell(Kind::Booking, LIVES, 1, Outcome::Booked);
            case.tell(Kind::Delayed, LIVES, 1, Outcome::Worked);
            case.tell(Kind::Flaky, LIVES, 1, Outcome::Failed);
            case.tell(Kind::Flaky, LIVES, 2, Outcome::Worked);
            case.tell(Kind::Broken, LIVES, 1, Outcome::Failed);
            case.tell(Kind::Killer, Life(3), 1, Outcome::Kills);
            case.held.effects = vec![Case::id_of(Kind::Booking)];
            case.held.dead_letters = vec![
                (Case::id_of(Kind::Broken), "exhausted".to_owned()),
                (killer, "lease-exhausted".to_owned()),
            ];
            case
        }

        fn id_of(kind: Kind) -> MessageId {
            id(kind as u32)
        }

        fn tell(&mut self, kind: Kind, life: Life, attempt: u32, outcome: Outcome) {
            self.ledger.told(life, Report { id: Case::id_of(kind), attempt, outcome });
        }

        fn forget(&mut self, kind: Kind) {
            self.ledger.deliveries.remove(&Case::id_of(kind));
        }

        fn audit(&self) -> Audit {
            audit(&self.ledger, &self.held)
        }

        #[track_caller]
        fn fails_with(&self, expected: &str) -> Audit {
            let audit = self.audit();
            let failed: Vec<&str> =
                audit.findings.iter().filter(|one| !one.holds).map(|one| one.sentence.as_str()).collect();
            assert!(failed.iter().any(|sentence| sentence.contains(expected)), "{failed:?}");
            audit
        }
    }

    #[test]
    fn a_good_demo_holds() {
        let audit = Case::good().audit();
        assert!(audit.holds(), "{:?}", audit.findings);
        let expected = Row { sent: 6, done: 4, dead: 2, lost: 0, deliveries: 7, duplicates: 0 };
        assert_eq!(audit.total, expected);
    }

    #[test]
    fn a_lost_message_is_found_even_if_the_counts_agree() {
        let mut case = Case::good();
        case.forget(Kind::Work);
        let audit = case.fails_with("1 ids without exactly one end");
        assert_eq!(audit.total.lost, 1);
        case.fails_with("the store counts differently");
    }

    #[test]
    fn a_message_that_is_still_open_is_found() {
        let mut case = Case::good();
        case.held.counts.insert(Kind::Work, Counts { sent: 1, done: 0, dead: 0, open: 1 });
        case.fails_with("`demo-work` has sent 1, done 0, dead 0, open 1");
    }

    #[test]
    fn a_message_that_is_done_and_dead_is_found() {
        let mut case = Case::good();
        case.held.dead_letters.push((Case::id_of(Kind::Work), "exhausted".to_owned()));
        case.fails_with("is done and a dead letter");
        case.fails_with("should be: no dead letter, is: exhausted");
    }

    #[test]
    fn a_missing_dead_letter_is_found() {
        let mut case = Case::good();
        case.held.dead_letters.pop();
        case.fails_with("should be: lease-exhausted, is: no dead letter");
        assert_eq!(case.audit().total.lost, 1);
    }

    #[test]
    fn a_dead_letter_of_another_reason_is_found() {
        let mut case = Case::good();
        case.held.dead_letters[0].1 = "undecodable".to_owned();
        case.fails_with("should be: exhausted, is: undecodable");
    }

    #[test]
    fn a_double_effect_is_found() {
        let mut case = Case::good();
        case.held.effects.push(Case::id_of(Kind::Booking));
        case.fails_with("wrote 2 rows");
    }

    #[test]
    fn a_missing_effect_is_found() {
        let mut case = Case::good();
        case.held.effects.clear();
        case.fails_with("wrote 0 rows");
    }

    #[test]
    fn a_row_proves_that_a_booking_is_done_though_its_worker_died_before_it_said_so() {
        let mut case = Case::good();
        case.forget(Kind::Booking);
        case.tell(Kind::Booking, KILLED, 1, Outcome::Begun);
        assert!(case.audit().holds());
    }

    #[test]
    fn a_repeat_after_a_death_is_counted_and_explained() {
        let mut case = Case::good();
        case.forget(Kind::Work);
        case.tell(Kind::Work, KILLED, 1, Outcome::Worked);
        case.tell(Kind::Work, LIVES, 1, Outcome::Worked);
        let audit = case.audit();
        assert!(audit.holds(), "{:?}", audit.findings);
        assert_eq!((audit.total.duplicates, audit.rows[&Kind::Work].duplicates), (1, 1));
    }

    #[test]
    fn a_repeat_while_the_worker_lived_is_found() {
        let mut case = Case::good();
        case.tell(Kind::Work, KILLED, 1, Outcome::Worked);
        case.fails_with("1 repeats although the worker lived");
    }

    #[test]
    fn a_retry_is_no_repeat_but_the_same_attempt_twice_is() {
        let mut case = Case::good();
        case.forget(Kind::Flaky);
        case.tell(Kind::Flaky, LIVES, 1, Outcome::Failed);
        case.tell(Kind::Flaky, LIVES, 1, Outcome::Failed);
        case.tell(Kind::Flaky, LIVES, 2, Outcome::Worked);
        case.fails_with("1 repeats although the worker lived");
    }

    #[test]
    fn a_death_without_a_known_cause_is_found() {
        let mut case = Case::good();
        case.ledger.died(Life(9), Cause::Unknown);
        case.fails_with("1 workers that died of something else: process 9");
        let mut case = Case::good();
        case.ledger.died(Life(9), Cause::Message(Case::id_of(Kind::Work)));
        case.fails_with("process 9");
    }

    #[test]
    fn a_delayed_message_that_came_early_is_found() {
        let mut case = Case::good();
        case.forget(Kind::Delayed);
        case.tell(Kind::Delayed, LIVES, 1, Outcome::CameEarly);
        case.fails_with("came early");
    }

    #[test]
    fn only_the_first_faults_are_named() {
        let mut case = Case::good();
        case.ledger.deliveries.clear();
        case.held.effects.clear();
        case.fails_with("; and more");
    }
}
