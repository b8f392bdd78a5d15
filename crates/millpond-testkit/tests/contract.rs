//! Every scenario that is written is run: the list of the macro names each public function of the chapters.

#![allow(clippy::unwrap_used, reason = "what fails in a test fails it")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The files of a folder and of those in it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn the_macro_lists_every_scenario() {
    let chapters = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/contract");
    let mut written = BTreeSet::new();
    for file in files(&chapters) {
        let text = std::fs::read_to_string(file).unwrap();
        let names = text.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next());
        written.extend(names.map(str::to_owned));
    }
    let list = std::fs::read_to_string(chapters.join("mod.rs")).unwrap();
    let listed: BTreeSet<String> =
        list.lines().map(str::trim).filter(|line| written.contains(*line)).map(str::to_owned).collect();
    assert!(100 < written.len());
    assert_eq!(written.difference(&listed).collect::<Vec<_>>(), Vec::<&String>::new());
}
