//! `docs/reference/stores.md`: what each store can do, by its own declaration and by the run of the contract. Its table is
//! written by `cargo xtask stores`, which runs the contract; the sentences around it are written by people.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use crate::{repo, services};

/// The page.
pub const PAGE: &str = "docs/reference/stores.md";

/// The begin and the end of what is written here.
const BEGIN: &str = "<!-- written by cargo xtask stores -->";
const END: &str = "<!-- end -->";

/// The list of the scenarios.
const SCENARIOS: &str = "crates/millpond-testkit/src/contract/mod.rs";

/// What the bench says of a scenario in which something else was checked, because the store declares that it cannot.
const AS_DECLARED: &str = "as declared";

const RUN_ON: &str = "Run on ";
const OTHERWISE: &str = "- other than elsewhere on ";
const FAILS: &str = "- fails on ";

/// A store, and a way to it.
struct Mode {
    title: &'static str,
    crate_name: &'static str,
    /// Its constant in the capabilities of that crate.
    constant: &'static str,
    /// What the names of its tests begin with.
    module: &'static str,
    /// The constants of the oldest version, with the name of the server.
    versions: &'static [(&'static str, &'static str)],
}

const POSTGRES: &str = "SERVER_VERSION_MIN";
const MODES: [Mode; 5] = [
    mode("SQLite, file", "millpond-sqlite", "FILE", "file::", SQLITE),
    mode("SQLite, memory", "millpond-sqlite", "MEMORY", "memory::", SQLITE),
    mode("Postgres", "millpond-postgres", "POSTGRES", "direct::", &[("Postgres", POSTGRES)]),
    mode(
        "Postgres through pgbouncer",
        "millpond-postgres",
        "POSTGRES",
        "through_proxy::",
        &[("Postgres", POSTGRES)],
    ),
    mode("MariaDB", "millpond-mysql", "MYSQL", "", &[("MariaDB", "MARIADB_MIN"), ("MySQL", "MYSQL_MIN")]),
];
const SQLITE: &[(&str, &str)] = &[("built in,", "SQLITE_VERSION_MIN")];

const fn mode(
    title: &'static str,
    crate_name: &'static str,
    constant: &'static str,
    module: &'static str,
    versions: &'static [(&'static str, &'static str)],
) -> Mode {
    Mode { title, crate_name, constant, module, versions }
}

/// What the sources say.
#[derive(Debug, Default)]
pub struct Facts {
    /// The chapters of the contract with their scenarios, in order.
    chapters: Vec<(String, Vec<String>)>,
    /// For each mode its capabilities, in order.
    capabilities: Vec<Vec<(String, bool)>>,
    /// For each mode the oldest versions.
    versions: Vec<String>,
}

/// What a run has shown.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The programs and their versions.
    on: String,
    /// By the title of the mode: scenarios that did not pass.
    failed: BTreeMap<String, BTreeSet<String>>,
    /// By the title of the mode: scenarios in which something else was checked, as declared.
    otherwise: BTreeMap<String, BTreeSet<String>>,
}

impl Facts {
    /// Reads them below `root`.
    ///
    /// # Errors
    ///
    /// What cannot be read or is not there.
    pub fn read(root: &Path) -> Result<Self, String> {
        let read = |path: &str| {
            std::fs::read_to_string(root.join(path)).map_err(|error| format!("cannot read {path}: {error}"))
        };
        let mut facts = Self { chapters: chapters(&read(SCENARIOS)?), ..Self::default() };
        for Mode { crate_name, constant, versions, .. } in &MODES {
            let source = format!("crates/{crate_name}/src");
            let text = read(&format!("{source}/capabilities.rs"))?;
            facts.capabilities.push(capabilities(&text, constant)?);
            // SQLite is opened where it is connected to; a server is looked at by each connection.
            let file = if crate_name.ends_with("sqlite") { "connect.rs" } else { "connection.rs" };
            let text = read(&format!("{source}/{file}"))?;
            let oldest = versions.iter().map(|(name, constant)| {
                value(&text, constant).map(|value| format!("{name} {} or later", version(value)))
            });
            facts.versions.push(oldest.collect::<Result<Vec<_>, _>>()?.join("; "));
        }
        Ok(facts)
    }

    fn scenarios(&self) -> impl Iterator<Item = &String> {
        self.chapters.iter().flat_map(|(_, scenarios)| scenarios)
    }
}

/// The chapters and their scenarios, from the list of the macro.
fn chapters(text: &str) -> Vec<(String, Vec<String>)> {
    let (_, list) = text.split_once("contract_tests! {").unwrap_or_default();
    let (_, list) = list.split_once(';').unwrap_or_default();
    let mut chapters = Vec::new();
    for line in list.lines().map(str::trim) {
        if let Some(name) = line.strip_suffix(" {") {
            chapters.push((name.to_owned(), Vec::new()));
        } else if line == "}" {
            // The last brace of a chapter; the next line begins another, or ends the list.
        } else if let (Some((_, scenarios)), true) = (chapters.last_mut(), is_name(line)) {
            scenarios.push(line.to_owned());
        } else if !line.is_empty() {
            break;
        }
    }
    chapters
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The fields of a constant, in order; those that it takes from another one too.
fn capabilities(text: &str, constant: &str) -> Result<Vec<(String, bool)>, String> {
    let missing = || format!("there are no capabilities `{constant}`");
    let (_, rest) = text.split_once(&format!("const {constant}: Capabilities")).ok_or_else(missing)?;
    let body = rest.split_once('{').and_then(|(_, rest)| rest.split_once('}')).ok_or_else(missing)?.0;
    let mut own = Vec::new();
    for field in body.split(',').map(str::trim) {
        if let Some(base) = field.strip_prefix("..") {
            let changed = own;
            own = capabilities(text, base)?;
            for (name, value) in &mut own {
                let other = changed.iter().find(|(other, _)| other == name);
                *value = other.map_or(*value, |(_, value)| *value);
            }
        } else if let Some((name, value)) = field.split_once(": ")
            && let Ok(value) = value.parse()
        {
            own.push((name.to_owned(), value));
        }
    }
    Ok(own)
}

/// The value of a constant, as it is written.
fn value<'t>(text: &'t str, constant: &str) -> Result<&'t str, String> {
    let line = text.lines().find(|line| line.contains(&format!("const {constant}: ")));
    let value = line.and_then(|line| line.split_once(" = ")?.1.strip_suffix(';'));
    value.ok_or_else(|| format!("there is no constant `{constant}`"))
}

/// As people write it: `(10, 6)`, `130_000` of Postgres, `3_051_003` of SQLite.
fn version(value: &str) -> String {
    let numbers: Vec<u64> = value
        .trim_matches(['(', ')'])
        .split(", ")
        .filter_map(|number| number.replace('_', "").parse().ok())
        .collect();
    match *numbers {
        [whole] if whole < 1_000_000 => (whole / 10_000).to_string(),
        [whole] => format!("{}.{}.{}", whole / 1_000_000, whole / 1_000 % 1_000, whole % 1_000),
        _ => numbers.iter().map(u64::to_string).collect::<Vec<_>>().join("."),
    }
}

impl Outcome {
    /// Takes what the tests of a crate have written, run with `--show-output`.
    fn hear(&mut self, facts: &Facts, crate_name: &str, said: &str) {
        for Mode { title, module, .. } in MODES.iter().filter(|mode| mode.crate_name == crate_name) {
            let of = |line: &str, before: &str, after: &str| -> Option<String> {
                let name = line.strip_prefix(before)?.strip_suffix(after)?;
                name.strip_prefix(module).filter(|name| is_name(name)).map(str::to_owned)
            };
            let passed: BTreeSet<String> =
                said.lines().filter_map(|line| of(line, "test ", " ... ok")).collect();
            let failed = facts.scenarios().filter(|scenario| !passed.contains(*scenario));
            self.failed.entry((*title).to_owned()).or_default().extend(failed.cloned());
            let mut of_whom = None;
            for line in said.lines() {
                if line.starts_with("---- ") {
                    of_whom = of(line, "---- ", " stdout ----");
                } else if line.ends_with(AS_DECLARED) {
                    self.otherwise.entry((*title).to_owned()).or_default().extend(of_whom.clone());
                }
            }
        }
    }

    /// What a page says.
    fn read(part: &str) -> Self {
        let by_title = |begin: &str| -> BTreeMap<String, BTreeSet<String>> {
            let lines = part.lines().filter_map(|line| line.strip_prefix(begin)?.split_once(": "));
            let names = |names: &str| names.split('`').skip(1).step_by(2).map(str::to_owned).collect();
            lines.map(|(title, list)| (title.to_owned(), names(list))).collect()
        };
        let on = part.lines().find_map(|line| line.strip_prefix(RUN_ON)?.strip_suffix('.'));
        Self {
            on: on.unwrap_or_default().to_owned(),
            failed: by_title(FAILS),
            otherwise: by_title(OTHERWISE),
        }
    }

    fn failed(&self, title: &str, scenario: &str) -> bool {
        self.failed.get(title).is_some_and(|failed| failed.contains(scenario))
    }
}

/// The part of the page between its marks.
fn part(facts: &Facts, outcome: &Outcome) -> String {
    let mut text = format!("{BEGIN}\n{RUN_ON}{}.\n\n|", outcome.on);
    for Mode { title, .. } in &MODES {
        let _ = write!(text, " | {title}");
    }
    text.push_str(" |\n|---|---|---|---|---|---|\n");
    let mut row = |name: &str, cells: Vec<String>| {
        let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
    };
    row("version", facts.versions.clone());
    for (index, (name, _)) in facts.capabilities[0].iter().enumerate() {
        let cell = |own: &Vec<(String, bool)>| {
            own.get(index).map_or("?", |(_, can)| if *can { "yes" } else { "no" })
        };
        row(&format!("`{name}`"), facts.capabilities.iter().map(|own| cell(own).to_owned()).collect());
    }
    let counts = |scenarios: &[&String]| {
        let passed = |mode: &Mode| scenarios.iter().filter(|name| !outcome.failed(mode.title, name)).count();
        MODES.iter().map(|mode| format!("{} of {}", passed(mode), scenarios.len())).collect::<Vec<_>>()
    };
    row("scenarios that pass", counts(&facts.scenarios().collect::<Vec<_>>()));
    for (chapter, scenarios) in &facts.chapters {
        row(&format!("… {}", chapter.replace('_', " ")), counts(&scenarios.iter().collect::<Vec<_>>()));
    }
    text.push('\n');
    for (begin, by_title) in [(FAILS, &outcome.failed), (OTHERWISE, &outcome.otherwise)] {
        for (title, names) in by_title.iter().filter(|(_, names)| !names.is_empty()) {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            let _ = writeln!(text, "{begin}{title}: {}", names.join(", "));
        }
    }
    for (chapter, scenarios) in &facts.chapters {
        let _ = writeln!(text, "\n**{}**\n", chapter.replace('_', " "));
        for scenario in scenarios {
            let _ = writeln!(text, "- `{scenario}`");
        }
    }
    text.push_str(END);
    text
}

/// Where the part of a page begins and ends.
fn place(page: &str) -> Result<(usize, usize), String> {
    let begin = page.find(BEGIN).ok_or_else(|| format!("{PAGE} has no line `{BEGIN}`"))?;
    let end = page[begin..].find(END).ok_or_else(|| format!("{PAGE} has no line `{END}`"))?;
    Ok((begin, begin + end + END.len()))
}

/// What is wrong with a page: it says something else than the sources, or that something does not pass.
///
/// # Errors
///
/// When it has no marks.
pub fn breaches(facts: &Facts, page: &str) -> Result<Vec<String>, String> {
    let (begin, end) = place(page)?;
    let written = &page[begin..end];
    let outcome = Outcome::read(written);
    let mut found: Vec<String> =
        outcome.failed.iter().map(|(title, names)| format!("{title} fails {names:?}")).collect();
    if part(facts, &outcome) != written {
        found.push(format!("{PAGE} differs from the sources: run `cargo xtask stores`"));
    }
    Ok(found)
}

/// Runs the contract of every store and writes the page.
pub fn write() -> ExitCode {
    match run().and_then(|(facts, outcome)| put(&facts, &outcome)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(Facts, Outcome), String> {
    let facts = Facts::read(&repo::root())?;
    let mut outcome = Outcome { on: services::versions().join(", "), ..Outcome::default() };
    let crates: BTreeSet<&str> = MODES.iter().map(|mode| mode.crate_name).collect();
    for name in crates {
        let mut command = Command::new(repo::cargo());
        command.args(["test", "-p", name, "--test", "contract", "--no-fail-fast", "--", "--show-output"]);
        let ran = command.current_dir(repo::root()).stderr(Stdio::inherit()).output();
        let ran = ran.map_err(|error| format!("cannot start cargo: {error}"))?;
        outcome.hear(&facts, name, &String::from_utf8_lossy(&ran.stdout));
    }
    Ok((facts, outcome))
}

fn put(facts: &Facts, outcome: &Outcome) -> Result<(), String> {
    let path = repo::root().join(PAGE);
    let page = std::fs::read_to_string(&path).map_err(|error| format!("cannot read {PAGE}: {error}"))?;
    let (begin, end) = place(&page)?;
    let page = format!("{}{}{}", &page[..begin], part(facts, outcome), &page[end..]);
    std::fs::write(&path, &page).map_err(|error| format!("cannot write {PAGE}: {error}"))?;
    match breaches(facts, &page)?.as_slice() {
        [] => Ok(()),
        found => Err(found.join("\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "test memory::a ... ok\ntest file::a ... ok\ntest file::b ... ok\ntest memory::b ... FAILED\n\
                        ---- memory::a stdout ----\nsqlite: shared with nobody, as declared\n";

    fn facts() -> Facts {
        let own = || vec![("shared".to_owned(), true)];
        Facts {
            chapters: vec![("life".to_owned(), vec!["a".to_owned(), "b".to_owned()])],
            capabilities: MODES.iter().map(|_| own()).collect(),
            versions: MODES.iter().map(|_| "1 or later".to_owned()).collect(),
        }
    }

    fn heard() -> Outcome {
        let mut outcome = Outcome { on: "Postgres 15".to_owned(), ..Outcome::default() };
        outcome.hear(&facts(), "millpond-sqlite", SAID);
        outcome
    }

    #[test]
    fn what_failed_and_what_was_checked_otherwise_is_in_the_page_and_read_from_it() {
        let page = part(&facts(), &heard());
        assert!(page.contains("| scenarios that pass | 2 of 2 | 1 of 2 |"), "{page}");
        assert!(page.contains("- fails on SQLite, memory: `b`\n"), "{page}");
        assert!(page.contains("- other than elsewhere on SQLite, memory: `a`\n"), "{page}");
        let found = breaches(&facts(), &page).unwrap();
        assert_eq!(found, [r#"SQLite, memory fails {"b"}"#], "and nothing differs");
    }

    #[test]
    fn a_page_of_another_contract_differs() {
        let page = part(&facts(), &Outcome::default());
        assert_eq!(breaches(&facts(), &page).unwrap(), Vec::<String>::new());
        let more = Facts { chapters: vec![("life".to_owned(), vec!["a".to_owned()])], ..facts() };
        assert_eq!(breaches(&more, &page).unwrap().len(), 1);
        assert!(breaches(&facts(), "a page without marks").is_err());
    }

    #[test]
    fn sources_are_read() {
        let list = "macro {\n $crate::contract_tests! { $provider;\n  life {\n   a\n   b\n  }\n  end {\n   c\n  }\n }\n };\n";
        let scenarios = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(
            chapters(list),
            [("life".to_owned(), scenarios(&["a", "b"])), ("end".to_owned(), scenarios(&["c"]))]
        );
        let text = "const A: Capabilities =\n    Capabilities { store: \"x\", one: true, two: true };\n\
                    const B: Capabilities = Capabilities { two: false, ..A };\n";
        assert_eq!(capabilities(text, "B").unwrap(), [("one".to_owned(), true), ("two".to_owned(), false)]);
        assert!(capabilities(text, "C").is_err());
        for (written, shown) in [("130_000", "13"), ("(10, 6)", "10.6"), ("3_051_003", "3.51.3")] {
            assert_eq!(version(written), shown);
        }
        assert_eq!(value("const X: i32 = 5;", "X").unwrap(), "5");
    }
}
