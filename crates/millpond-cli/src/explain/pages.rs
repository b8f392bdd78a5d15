//! The pages, embedded. A new code gets a file in its folder and a word here; a test holds the two together.

use serde::Serialize;

/// What a page is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// The code of an error.
    Error,
    /// A cause that `why` names, a reason of a dead letter or of the run log, or a hint of `doctor`.
    Cause,
}

impl Kind {
    /// As it is printed.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Kind::Error => "error",
            Kind::Cause => "cause",
        }
    }
}

/// A page.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its word.
    pub(super) code: &'static str,
    /// What it is about.
    pub(super) kind: Kind,
    /// Its Markdown.
    pub(super) text: &'static str,
}

macro_rules! pages {
    ($($kind:ident in $folder:literal: $($code:literal)*;)*) => {
        /// Every page: errors, then causes.
        pub(super) const PAGES: &[Entry] = &[$($(Entry {
            code: $code,
            kind: Kind::$kind,
            text: include_str!(concat!("../../../../docs/", $folder, "/", $code, ".md")),
        },)*)*];
    };
}

pages! {
    Error in "errors":
        "already-retried" "already-settled" "batch-too-large" "body-too-large" "count-changed" "dedup-conflict"
        "handler-missing" "internal" "interrupted" "invalid-config" "invalid-filter"
        "invalid-header" "invalid-json" "invalid-key" "invalid-name" "invalid-option"
        "invalid-parameter" "lease-lost" "message-not-found" "not-drained" "not-found"
        "not-serialisable" "queue-conflict" "schema-newer" "schema-older" "send-inside-transaction"
        "shutting-down" "statement-failed" "storage-full" "store-unavailable" "store-unreachable"
        "transaction-required"
        "unknown-outcome" "unknown-queue" "unknown-time-zone" "unsupported-store" "wrong-state";
    Cause in "causes":
        "BACKLOG_AGE" "BINLOG_UNSYNCED" "CLOCK_SKEW" "CONNECTIONS_USED" "DLQ_RISING" "DOUBLEWRITE_OFF" "FLUSH_OFF" "FAILED_JOBS_PRESENT" "FREE_PAGES" "FSYNC_OFF"
        "HEALTHY"
        "INTEGRITY_BROKEN" "IN_MEMORY" "JOB_WITHOUT_HANDLER" "OLD_SNAPSHOT" "OUTBOX_STALLED"
        "PREPARED_TRANSACTIONS"
        "PROCESSING_TIMEOUT_TOO_SHORT" "QUEUE_PAUSED" "QUEUE_WITHOUT_LISTENER" "REPLICATION_SLOTS"
        "SLOTS_STUCK" "SYNCHRONOUS_COMMIT_OFF" "SYNCHRONOUS_NORMAL" "TIMED_OUT_PROCESSING" "WORKER_HEARTBEAT_STALE" "asked" "behind"
        "cancelled" "commit-unknown" "concurrency-limit" "dead" "done" "error" "exclusive-busy" "exhausted"
        "handoff-failed" "ignored"
        "lease-exhausted" "lease-expired" "leased" "limited" "no-free-slots" "no-handler"
        "no-listener-expired" "no-listener" "not-relayed" "panic" "paused" "purged" "rate-limited" "ready"
        "refused" "releases-exhausted" "retry-until" "retrying" "scheduled" "shutdown" "snooze"
        "snoozed" "suspect-waits" "timeout" "too-old" "undecodable" "unknown-id"
        "unsupported-payload" "worker-dead";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use millpond_core::reason::{Back, DropReason, EventKind, Failure, Release};

    use super::super::page::Page;
    use super::*;
    use crate::codes;

    fn words(kind: Kind) -> Vec<&'static str> {
        PAGES.iter().filter(|entry| entry.kind == kind).map(|entry| entry.code).collect()
    }

    fn files(folder: &str) -> BTreeSet<String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(folder);
        let names = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.to_str().unwrap().strip_suffix(".md").unwrap().to_owned()).collect()
    }

    #[test]
    fn every_code_has_one_page_and_every_page_a_code() {
        let written: Vec<_> = words(Kind::Error);
        let unique: BTreeSet<_> = written.iter().copied().collect();
        assert_eq!(unique.len(), written.len(), "a page is listed twice");
        let known: BTreeSet<_> = codes::all().map(|facts| facts.code).collect();
        let missing: Vec<_> = known.difference(&unique).collect();
        assert!(missing.is_empty(), "write docs/errors/<code>.md and list it in {}: {missing:?}", file!());
        let unknown: Vec<_> = unique.difference(&known).collect();
        assert!(unknown.is_empty(), "no error has these codes: {unknown:?}");
        assert_eq!(files("errors"), unique.iter().map(|code| (*code).to_owned()).collect());
    }

    #[test]
    fn every_cause_and_every_reason_has_one_page() {
        let written: BTreeSet<_> = words(Kind::Cause).into_iter().collect();
        assert_eq!(written.len(), words(Kind::Cause).len(), "a page is listed twice");
        assert_eq!(files("causes"), written.iter().map(|code| (*code).to_owned()).collect());
        let backs = [Back::Snoozed, Back::Reclaimed].into_iter();
        let backs = backs.chain(Failure::ALL.iter().map(|failure| Back::Failed(*failure)));
        let backs = backs.chain(Release::ALL.iter().map(|release| Back::Released(*release)));
        let mut known: BTreeSet<&str> = backs.map(|back| back.event().1).collect();
        assert!(EventKind::ALL.len() == 6, "a new kind of event may have reasons of its own");
        known.extend(DropReason::ALL.iter().map(|reason| reason.as_str()));
        let why = causes_of_why();
        known.extend(why.iter().map(String::as_str));
        let hints = hints();
        known.extend(hints.iter().map(String::as_str));
        let missing: Vec<_> = known.difference(&written).collect();
        assert!(missing.is_empty(), "write docs/causes/<code>.md and list it in {}: {missing:?}", file!());
        let unknown: Vec<_> = written.difference(&known).collect();
        assert!(unknown.is_empty(), "nothing says these: {unknown:?}");
    }

    /// The codes of hints, which are words in capitals.
    fn hints() -> BTreeSet<String> {
        let of_core = include_str!("../../../millpond-core/src/hints.rs");
        let of_store = include_str!("../../../millpond-sqlite/src/info.rs");
        let of_postgres = include_str!("../../../millpond-postgres/src/info.rs");
        let of_mysql = include_str!("../../../millpond-mysql/src/info.rs");
        let of_files = include_str!("../doctor/integrity.rs");
        let texts = [of_core, of_store, of_postgres, of_mysql, of_files];
        let texts = texts.map(|text| text.split("#[cfg(test)]").next().unwrap());
        let is_code =
            |word: &&str| 5 < word.len() && word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        let found = texts.iter().flat_map(|text| text.split('"')).filter(is_code).map(str::to_owned);
        let found: BTreeSet<String> = found.collect();
        assert!(15 < found.len(), "only {found:?} were seen: the guard looks at nothing");
        found
    }

    /// The codes that stand in the code of `why`.
    fn causes_of_why() -> BTreeSet<String> {
        let text = include_str!("../why/decide.rs").split("#[cfg(test)]").next().unwrap();
        let spaceless: String = text.split_whitespace().collect();
        let mut found = BTreeSet::new();
        for before in ["Cause::new(\"", "=>(\""] {
            let literals = spaceless.split(before).skip(1).filter_map(|rest| rest.split('"').next());
            found.extend(literals.map(str::to_owned));
        }
        assert!(15 < found.len(), "only {found:?} were seen: the guard looks at nothing");
        found
    }

    /// Each command in backticks can be read by the program. One that is only mentioned may lack arguments.
    #[test]
    fn every_command_that_a_page_names_is_one() {
        let (mut seen, mut wrong) = (0, Vec::new());
        for entry in PAGES {
            for line in entry.text.split('`').skip(1).step_by(2).filter(|code| code.starts_with("millpond "))
            {
                let line = line.replace('\n', " ").replace("--expect N", "--expect 1");
                let line = line.replace("ID", "0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10");
                let is_mention = |why: &String| why.contains("not provided") || why.contains("is required");
                let refused = crate::args::tests::refused(&line).filter(|why| !is_mention(why));
                wrong.extend(refused.map(|why| format!("{}: {why}", entry.code)));
                seen += 1;
            }
        }
        assert!(50 < seen, "only {seen} commands were seen");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn no_word_has_two_pages() {
        let all: BTreeSet<_> = PAGES.iter().map(|entry| entry.code).collect();
        assert_eq!(all.len(), PAGES.len());
    }

    #[test]
    fn every_page_has_its_parts_in_their_order() {
        for entry in PAGES {
            let page = Page::read(entry.text);
            let headings: Vec<_> = entry.text.lines().filter(|line| line.starts_with('#')).collect();
            let title = format!("# {}", entry.code);
            assert_eq!(headings, [title.as_str(), "## When it happens", "## What to do"], "{}", entry.code);
            assert!(page.title.ends_with('.'), "{}: its first paragraph is a sentence", entry.code);
            assert!(!page.when.is_empty() && !page.steps.is_empty(), "{}", entry.code);
            let names: Vec<_> = page.facts.iter().map(|(name, _)| name.as_str()).collect();
            match entry.kind {
                Kind::Error => {
                    assert_eq!(names, ["Retry", "Exit code", "HTTP status"], "{}", entry.code);
                    assert!(page.example.is_some(), "{}: it shows the message as it is printed", entry.code);
                }
                Kind::Cause => assert_eq!(names, ["Shown by"], "{}", entry.code),
            }
        }
    }

    #[test]
    fn what_a_page_says_of_its_code_is_what_the_program_does() {
        for facts in codes::all() {
            let entry = PAGES.iter().find(|entry| entry.code == facts.code).unwrap();
            let page = Page::read(entry.text);
            let first = |name: &str| {
                let text = page.fact(name).unwrap();
                text.split([' ', ',']).next().unwrap_or_default().to_owned()
            };
            assert_eq!(first("Retry"), facts.retry.as_str(), "{}", facts.code);
            assert_eq!(first("Exit code"), (facts.exit as u8).to_string(), "{}", facts.code);
            let status = facts.status.map_or("none".to_owned(), |status| status.to_string());
            assert_eq!(first("HTTP status"), status, "{}", facts.code);
            let example = page.example.unwrap();
            assert!(example.contains(&format!("({})", facts.code)), "{}: its example is of it", facts.code);
        }
    }
}
