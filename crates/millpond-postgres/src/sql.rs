//! The SQL statements, by name. Each is a paragraph of a `.sql` file that begins with `-- name:`. They are written for
//! the schema `millpond`; another name is put in its place once, when a store is opened.

use std::collections::HashMap;

use crate::migrate;

const FILES: [&str; 17] = [
    include_str!("../sql/verb.sql"),
    include_str!("../sql/queue.sql"),
    include_str!("../sql/log.sql"),
    include_str!("../sql/claim.sql"),
    include_str!("../sql/dead_letter.sql"),
    include_str!("../sql/inbox.sql"),
    include_str!("../sql/worker.sql"),
    include_str!("../sql/inspect.sql"),
    include_str!("../sql/retention.sql"),
    include_str!("../sql/schema.sql"),
    include_str!("../sql/list.sql"),
    include_str!("../sql/operate.sql"),
    include_str!("../sql/spots.sql"),
    include_str!("../sql/run_log.sql"),
    include_str!("../sql/tally.sql"),
    include_str!("../sql/info.sql"),
    include_str!("../sql/within.sql"),
];

/// The schema's name if the URL gives none; the files are written for it.
pub(crate) const SCHEMA: &str = "millpond";

/// The statements for one schema.
#[derive(Debug)]
pub(crate) struct Statements(HashMap<&'static str, String>);

impl Statements {
    /// For this schema, whose name needs no quotes.
    pub(crate) fn of(schema: &str) -> Self {
        let all = FILES.into_iter().flat_map(paragraphs);
        let known = migrate::LAST.to_string();
        let of_here = |statement: &str| in_schema(statement, schema).replace(":known", &known);
        Self(all.map(|(name, statement)| (name, of_here(statement))).collect())
    }

    /// The statement of this name.
    ///
    /// # Panics
    ///
    /// When there is none: a mistake in this crate, which a test finds.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.get(name).unwrap_or_else(|| panic!("there is no statement `{name}`"))
    }
}

/// SQL that is written for `millpond`, for another schema.
pub(crate) fn in_schema(sql: &str, schema: &str) -> String {
    if schema == SCHEMA { sql.to_owned() } else { sql.replace("millpond.", &format!("{schema}.")) }
}

fn paragraphs(file: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    file.split("-- name: ").skip(1).filter_map(|part| {
        let (name, statement) = part.split_once('\n')?;
        Some((name.trim(), statement.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let names: Vec<&str> = FILES.into_iter().flat_map(paragraphs).map(|(name, _)| name).collect();
        let unique: std::collections::HashSet<&&str> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
    }

    #[test]
    fn another_schema_takes_the_place() {
        let statements = Statements::of("jobs");
        assert!(statements.get("queue_list").contains("from jobs.queue"));
        assert!(!statements.get("lease").contains("millpond."));
    }
}
