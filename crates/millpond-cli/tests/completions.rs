//! `millpond completions`: a script for each shell, which names the commands and runs in the shell.

#![allow(clippy::unwrap_used, reason = "what fails in a test fails it")]

mod common;

use std::process::Command;

use common::Place;

#[test]
fn every_shell_gets_a_script_that_knows_the_commands() {
    let place = Place::empty();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = place.ok(&format!("completions {shell}"));
        for word in ["dead-letter", "redrive", "backoff"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let output = place.run("completions nu");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        common::stderr(&output).contains("bash, elvish, fish, powershell, zsh"),
        "{}",
        common::stderr(&output)
    );
}

#[test]
fn bash_completes_a_verb() {
    let place = Place::empty();
    place.write("script", &place.ok("completions bash"));
    let line = "source ./script; COMP_WORDS=(millpond queue s); COMP_CWORD=2; _millpond millpond s queue; \
                echo ${COMPREPLY[@]}";
    let output = Command::new("bash").args(["-c", line]).current_dir(place.path()).output();
    // Where there is no bash, nobody completes by it.
    let Ok(output) = output else { return };
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("show") && said.contains("send"), "{said}");
}
