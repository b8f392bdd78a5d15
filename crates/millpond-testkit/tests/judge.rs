//! The judge must not alarm on good histories, and must catch every known defect by the right invariant.

use millpond_testkit::judge::history::{self, Event, Op, Phase, Reader, Run};
use millpond_testkit::judge::self_test::{Dice, MUTATIONS, good_history};
use millpond_testkit::judge::{Invariant, judge, judge_lines};

const GOOD_HISTORIES: u64 = 100;
const SEEDS_PER_MUTATION: u64 = 5;

fn written(run: &Run, events: &[Event]) -> Vec<u8> {
    let mut file = Vec::new();
    history::write_line(&mut file, run).expect("memory takes every line");
    for event in events {
        history::write_line(&mut file, event).expect("memory takes every line");
    }
    file
}

#[test]
fn judge_raises_no_alarm_on_good_histories() {
    for seed in 0..GOOD_HISTORIES {
        let (run, events) = good_history(seed);
        let verdict = judge(&run, &events);
        let broken: Vec<_> = verdict.broken().map(ToString::to_string).collect();
        assert!(broken.is_empty(), "seed {seed}: {}", broken.join("\n"));
        assert!((8_000..12_000).contains(&events.len()), "seed {seed}: {} events", events.len());
        let counters = verdict.counters;
        assert_eq!((counters.lost, counters.double_effects, counters.unfinished), (0, 0, false));
        assert!(counters.sent > 1_000 && counters.redelivered > 0 && counters.kills > 0, "{counters:?}");
    }
}

/// A server that does not flush leases and settlements forgets the last of them when it is killed: then nobody is sure
/// of them.
#[test]
fn judge_raises_no_alarm_when_nobody_is_sure_of_the_last_moments_before_a_crash() {
    for seed in 0..GOOD_HISTORIES {
        let (run, mut events) = good_history(seed);
        let (from, to) = (events.len() / 4, events.len() / 2);
        for event in &mut events[from..to] {
            let may_be_forgotten = matches!(event.op, Op::Lease | Op::Settle | Op::Reclaim);
            if may_be_forgotten && event.ph == Phase::Ok {
                event.ph = Phase::Info;
            }
        }
        let verdict = judge(&run, &events);
        let broken: Vec<_> = verdict.broken().map(ToString::to_string).collect();
        assert!(broken.is_empty(), "seed {seed}: {}", broken.join("\n"));
    }
}

#[test]
fn judge_catches_every_mutation_by_the_right_invariant() {
    for seed in 0..SEEDS_PER_MUTATION {
        let (run, good) = good_history(1_000 + seed);
        for mutation in MUTATIONS {
            let mut events = good.clone();
            let context = format!("`{}`, seed {seed}", mutation.name);
            assert!(mutation.apply(&mut events, &mut Dice::new(seed)), "no place for {context}");
            let verdict = judge(&run, &events);
            let caught: Vec<_> = verdict.broken().map(|finding| finding.invariant).collect();
            assert!(caught.contains(&mutation.breaks), "{context}: {caught:?}, not {}", mutation.breaks);
        }
    }
}

#[test]
fn judge_mutations_cover_every_invariant() {
    for invariant in Invariant::ALL {
        assert!(MUTATIONS.iter().any(|mutation| mutation.breaks == invariant), "{invariant}");
    }
}

#[test]
fn judge_says_the_same_of_a_file_as_of_memory() {
    let (run, mut events) = good_history(7);
    events.retain(|event| event.op != Op::Dead);
    let file = written(&run, &events);
    assert!(Reader::open(&file[..]).unwrap().map(Result::unwrap).eq(events.iter().cloned()));
    let verdict = judge_lines(|| Ok(&file[..])).unwrap();
    assert!(!verdict.held());
    assert_eq!(verdict, judge(&run, &events));
}

#[test]
fn judge_shows_all_lines_of_the_offending_message() {
    let (run, mut events) = good_history(11);
    let at = events.iter().position(|event| event.op == Op::Table).unwrap();
    let id = events.remove(at).id;
    let verdict = judge(&run, &events);
    let finding = verdict.broken().next().unwrap();
    let lines: Vec<_> = finding.slice.iter().map(|line| &line.event).collect();
    assert_eq!(lines, events.iter().filter(|event| event.id == id).collect::<Vec<_>>());
    for line in &finding.slice {
        assert_eq!(events[line.number as usize - 2], line.event);
    }
}

#[test]
fn judge_refuses_what_is_not_a_history() {
    let (run, events) = good_history(1);
    let check = |file: &[u8], message: &str| {
        assert_eq!(judge_lines(|| Ok(file)).unwrap_err().to_string(), message);
    };
    check(b"", "history line 1: is missing");
    check(&written(&Run { version: 9, ..run.clone() }, &[]), "history line 1: has version 9, not 1");
    let mut torn = written(&run, &events[..2]);
    torn.truncate(torn.len() - 10);
    assert!(
        judge_lines(|| Ok(&torn[..]))
            .unwrap_err()
            .to_string()
            .starts_with("history line 3: EOF while parsing")
    );
}
