//! The ten largest files and functions: a list for reviewers to look at. No build fails over it.

use std::fmt::Write;
use std::path::Path;

use crate::repo::{self, Source};

const SHOWN: usize = 10;

/// A function and its length.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Function {
    /// From its `fn` line to its closing brace.
    pub lines: usize,
    /// `path:line name`.
    pub place: String,
}

/// The two lists.
pub fn report(root: &Path) -> String {
    let sources = repo::rust(root);
    let code = sources.iter().filter(|file| !file.path.contains("/tests/"));
    let mut files: Vec<_> = code.map(|file| (code_lines(&file.text), file.path.as_str())).collect();
    let mut functions: Vec<_> = sources.iter().flat_map(functions).collect();
    files.sort();
    functions.sort();
    let mut text = String::from("lines without tests, file\n");
    for (lines, path) in files.iter().rev().take(SHOWN) {
        let _ = writeln!(text, "{lines:6}  {path}");
    }
    text.push_str("\nlines, function\n");
    for Function { lines, place } in functions.iter().rev().take(SHOWN) {
        let _ = writeln!(text, "{lines:6}  {place}");
    }
    text
}

/// Lines before the tests of a file.
fn code_lines(text: &str) -> usize {
    text.lines().take_while(|line| *line != "#[cfg(test)]").count()
}

/// The functions of a formatted file: each ends at the first brace that stands as far to the right as its `fn`.
pub fn functions(file: &Source) -> Vec<Function> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let Some(name) = name_of(line) else { continue };
        if line.ends_with([';', '}']) {
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        let end = format!("{}}}", &line[..indent]);
        if let Some(length) = lines[number..].iter().position(|line| *line == end) {
            found.push(Function { lines: length + 1, place: format!("{}:{} {name}", file.path, number + 1) });
        }
    }
    found
}

/// The name of the function that begins in this line.
fn name_of(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_word = |word: &str| {
        matches!(word, "pub" | "const" | "async" | "unsafe" | "extern") || word.starts_with("pub(")
    };
    if !before.split_whitespace().all(is_word) {
        return None;
    }
    after.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_ends_at_its_own_brace() {
        let text = "pub(crate) async fn outer() {\n    if true {\n    }\n}\n\nfn short() {}\n// fn no\n";
        let file = Source { path: "a.rs".into(), text: text.into() };
        assert_eq!(functions(&file), [Function { lines: 4, place: "a.rs:1 outer".into() }]);
    }

    #[test]
    fn tests_do_not_count() {
        assert_eq!(code_lines("one\ntwo\n#[cfg(test)]\nmod tests {\n"), 2);
    }
}
