//! The SQL statements, by name. Each is a paragraph of a `.sql` file that begins with `-- name:`.

use std::collections::HashMap;
use std::sync::OnceLock;

const FILES: &[&str] = &[
    include_str!("../sql/queue.sql"),
    include_str!("../sql/log.sql"),
    include_str!("../sql/claim.sql"),
    include_str!("../sql/outbox.sql"),
    include_str!("../sql/dead_letter.sql"),
    include_str!("../sql/history.sql"),
    include_str!("../sql/inbox.sql"),
    include_str!("../sql/worker.sql"),
    include_str!("../sql/inspect.sql"),
    include_str!("../sql/list.sql"),
    include_str!("../sql/spots.sql"),
    include_str!("../sql/run_log.sql"),
    include_str!("../sql/tally.sql"),
    include_str!("../sql/info.sql"),
    include_str!("../sql/retention.sql"),
    include_str!("../sql/operate.sql"),
    include_str!("../sql/within.sql"),
];

/// The statement of this name.
///
/// # Panics
///
/// When there is none: a mistake in this crate, which a test finds.
pub(crate) fn sql(name: &str) -> &'static str {
    static STATEMENTS: OnceLock<HashMap<&'static str, &'static str>> = OnceLock::new();
    let statements = STATEMENTS.get_or_init(|| FILES.iter().copied().flat_map(statements).collect());
    statements.get(name).copied().unwrap_or_else(|| panic!("there is no statement `{name}`"))
}

fn statements(file: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    file.split("-- name: ").skip(1).filter_map(|part| {
        let (name, statement) = part.split_once('\n')?;
        Some((name.trim(), statement.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every statement is prepared against the migrated schema, so that a misspelt column is found here.
    #[test]
    fn every_statement_fits_the_schema() {
        let db = rusqlite::Connection::open_in_memory().unwrap();
        crate::migrate::up(&db, 0).unwrap();
        for (name, statement) in FILES.iter().copied().flat_map(statements) {
            if let Err(error) = db.prepare(statement) {
                panic!("{name}: {error}");
            }
        }
    }

    #[test]
    fn names_are_unique() {
        let names: Vec<&str> = FILES.iter().copied().flat_map(statements).map(|(name, _)| name).collect();
        let unique: std::collections::HashSet<&&str> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
    }
}
