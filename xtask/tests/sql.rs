//! Every statement that searches says how it finds its rows.

use xtask::repo;

/// Statements of a file whose comment says neither which index serves them nor what they walk. One that only adds
/// a row finds none.
fn silent(text: &str) -> Vec<&str> {
    let statements = text.split("-- name: ").skip(1).filter_map(|statement| statement.split_once('\n'));
    let says = |body: &str| {
        let mut comments = body.lines().filter(|line| line.starts_with("--"));
        let words = ["erved by ", "Walks ", "Reads ", "index "];
        comments.any(|line| words.iter().any(|word| line.contains(word)))
    };
    let only_adds =
        |body: &str| body.contains("insert into") && !body.contains("from ") && !body.contains("on conflict");
    statements.filter(|(_, body)| !only_adds(body) && !says(body)).map(|(name, _)| name).collect()
}

#[test]
fn every_statement_says_how_it_finds_its_rows() {
    let root = repo::root();
    let files = repo::files(&root);
    let ours = files.iter().filter(|path| path.contains("/sql/") && path.ends_with(".sql"));
    let mut read = 0;
    for path in ours {
        let text = std::fs::read_to_string(root.join(path)).expect("it was listed");
        assert!(silent(&text).is_empty(), "{path}: say which index serves {:?}", silent(&text));
        read += 1;
    }
    assert_ne!(read, 0);
}

#[test]
fn a_statement_that_says_nothing_is_found() {
    let text = "-- name: a\n-- Served by the primary key.\nselect 1 from t;\n\n-- name: b\n-- A reason.\n\
                delete from t;\n\n-- name: c\ninsert into t values (1);\n\n-- name: d\ninsert into t values (1)\n\
                on conflict do nothing;\n";
    assert_eq!(silent(text), ["b", "d"]);
}
