//! `millpond explain`, as somebody asks who has an error before them.

#![allow(clippy::unwrap_used, reason = "what fails in a test fails it")]

mod common;

use common::{Place, stderr};

#[test]
fn a_code_has_a_page_for_people_and_one_for_programs() {
    let place = Place::empty();
    let page = place.ok("explain Lease-Lost -o table");
    assert!(page.starts_with("lease-lost\nThe lease is over, "), "{page}");
    for part in ["Retry:       no\n", "Exit code:   6\n", "\nWhen it happens\n", "\nWhat to do\n1. "] {
        assert!(page.contains(part), "{part}\nis not in\n{page}");
    }
    assert!(!page.contains("```") && !page.contains("\n#") && !page.contains('\u{1b}'), "{page}");
    let page = place.json("explain unknown-outcome");
    assert_eq!((&page["kind"], &page["retry"]), (&"error".into(), &"same-key".into()));
    assert_eq!((&page["exitCode"], &page["httpStatus"]), (&1.into(), &504.into()));
    assert!(page["whatToDo"][0].as_str().unwrap().contains("same dedup key"), "{page}");
}

#[test]
fn a_reason_and_a_cause_are_explained_by_the_same_command() {
    let place = Place::empty();
    let page = place.json("explain exhausted");
    assert_eq!(page["kind"], "cause");
    assert!(page["shownBy"].as_str().unwrap().contains("millpond dead-letter list"), "{page}");
    assert!(place.ok("explain no-listener -o table").contains("\nShown by:    `millpond why`\n"));
}

#[test]
fn no_code_is_all_of_them() {
    let place = Place::empty();
    let all = place.json("explain");
    let items = all["items"].as_array().unwrap();
    assert!(60 < items.len(), "{}", items.len());
    assert!(items.iter().all(|item| item["title"].as_str().unwrap().ends_with('.')));
    assert!(place.ok("explain -o id").lines().any(|line| line == "storage-full"));
}

#[test]
fn a_code_that_is_none_is_answered_with_the_nearest() {
    let place = Place::empty();
    let output = place.run("explain storage-ful");
    common::refused(&output, 5, "error: there is no page for `storage-ful` (not-found)");
    assert!(stderr(&output).contains("did you mean `storage-full`?"), "{}", stderr(&output));
    assert!(!stderr(&place.run("explain xyzzyx")).contains("did you mean"));
}

/// It is asked for because of them.
#[test]
fn a_wrong_configuration_and_a_missing_store_do_not_matter() {
    let place = Place::empty();
    place.write("millpond.toml", "stoer = 1\n");
    place.ok("explain invalid-config");
    place.ok("completions bash");
    place.ok("config schema");
}
