//! The places of `docs/benchmarks.md` that runs write: each between its marks. What is outside is written by people.

use std::path::Path;

const HEAD: &str = "\
# Benchmarks

Ratios of one run are what counts: ours beside what plain SQL reaches through the same driver, in the same run, on the
same machine. The figures beside them move with the machine; do not compare those of two machines.
";

/// Puts a part in its place, and leaves the rest of the document as it is. `task` is the one of `cargo xtask` that wrote
/// it.
pub(crate) fn put(path: &Path, name: &str, task: &str, part: &str) -> std::io::Result<()> {
    let before = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => HEAD.to_owned(),
        Err(error) => return Err(error),
    };
    std::fs::write(path, replaced(&before, name, task, part))
}

/// The begin and the end of a part.
fn marks(name: &str, task: &str) -> (String, String) {
    (format!("<!-- {name}: written by cargo xtask {task} -->"), format!("<!-- {name}: end -->"))
}

/// The document with a part put in its place, or at the end.
fn replaced(document: &str, name: &str, task: &str, part: &str) -> String {
    let (begin, end) = marks(name, task);
    let whole = format!("{begin}\n{part}\n{end}");
    match (document.find(&begin), document.find(&end)) {
        (Some(from), Some(to)) if from < to => {
            format!("{}{whole}{}", &document[..from], &document[to + end.len()..])
        }
        _ => format!("{}\n\n{whole}\n", document.trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_put_in_its_place_and_the_rest_stays() {
        let first = replaced("# Benchmarks\n", "SQLite", "bench", "one");
        assert!(first.starts_with("# Benchmarks\n\n<!-- SQLite"), "{first}");
        let both = replaced(&first, "Postgres", "bench", "two");
        let again = replaced(&both, "SQLite", "bench", "three");
        assert!(again.contains("three") && again.contains("two") && !again.contains("one"), "{again}");
        assert_eq!(replaced(&again, "SQLite", "bench", "three"), again, "the same run writes the same");
    }
}
