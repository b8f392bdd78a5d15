//! The pages that are written from the program are those in the repository.

#![allow(clippy::unwrap_used, reason = "what fails in a test fails it")]

mod common;

use std::fs;
use std::path::Path;

use common::{Place, stderr};

#[test]
fn the_reference_is_that_of_the_program() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let place = Place::empty();
    let mut command = place.command("reference --check");
    let output = command.arg(&docs).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn a_page_that_differs_is_named_and_left_as_it_is() {
    let place = Place::empty();
    place.ok("reference docs");
    place.ok("reference docs --check");
    place.write("docs/man/millpond.1", "old");
    place.refused(
        "reference docs --check",
        1,
        "error: docs/man/millpond.1 differs from the program (internal)",
    );
    assert_eq!(fs::read_to_string(place.path().join("docs/man/millpond.1")).unwrap(), "old");
    place.ok("reference docs");
    place.ok("reference docs --check");
}
