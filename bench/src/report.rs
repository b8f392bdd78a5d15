//! What was measured, with the goal beside it.

use serde_json::{Map, Value, json};

/// Named figures, in the order in which they were measured.
pub(crate) struct Report {
    figures: Vec<Figure>,
    rounds: usize,
    database: Database,
}

/// What was measured.
pub(crate) struct Database {
    /// As people write it.
    pub(crate) name: &'static str,
    /// As the JSON writes it.
    pub(crate) key: &'static str,
    pub(crate) version: String,
    /// How it was set up.
    pub(crate) settings: String,
}

impl Database {
    /// The one that is built in.
    pub(crate) fn sqlite() -> Self {
        let settings = "bundled; WAL, `synchronous=FULL`, a file in the folder for temporary files";
        let version = millpond::sqlite::rusqlite::version();
        Self { name: "SQLite", key: "sqlite", version: version.to_owned(), settings: settings.to_owned() }
    }

    /// A server that was started for the run.
    pub(crate) fn server(name: &'static str, key: &'static str, version: String, settings: &[&str]) -> Self {
        let settings = settings.iter().map(|setting| format!("`{setting}`")).collect::<Vec<_>>().join(", ");
        let settings = format!(
            "a server for the run alone, on loopback; its own durability: each commit is flushed; {settings}"
        );
        Self { name, key, version, settings }
    }
}

/// One measured figure.
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) goal: Option<Goal>,
}

/// What a figure should be.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    /// What is not a number meets nothing.
    pub(crate) fn is_met(self, value: f64) -> bool {
        match self {
            Goal::AtLeast(least) => least <= value,
            Goal::AtMost(most) => value <= most,
        }
    }
}

impl Report {
    pub(crate) fn new(rounds: usize, database: Database) -> Self {
        Self { figures: Vec::new(), rounds, database }
    }

    /// Adds a figure.
    pub(crate) fn add(&mut self, name: &str, value: f64) {
        self.put(name, value, None);
    }

    /// Adds a figure that has a goal.
    pub(crate) fn goal(&mut self, name: &str, value: f64, goal: Goal) {
        self.put(name, value, Some(goal));
    }

    fn put(&mut self, name: &str, value: f64, goal: Option<Goal>) {
        eprintln!("{name:32} {value:>14.3}{}", shown(value, goal));
        self.figures.push(Figure { name: name.to_owned(), value, goal });
    }

    /// Prints the report; with `json`, as one object in the last line.
    pub(crate) fn print(&self, json: bool) {
        if !json {
            for Figure { name, value, goal } in &self.figures {
                println!("{name:32} {value:>14.3}{}", shown(*value, *goal));
            }
            return;
        }
        println!("{}", self.json());
    }

    /// Everything that was measured.
    pub(crate) fn figures(&self) -> &[Figure] {
        &self.figures
    }

    /// Rounds of each comparison.
    pub(crate) const fn rounds(&self) -> usize {
        self.rounds
    }

    /// What was measured.
    pub(crate) const fn database(&self) -> &Database {
        &self.database
    }

    /// Everything as one object, to three digits.
    pub(crate) fn json(&self) -> Value {
        let mut object = Map::new();
        for Figure { name, value, .. } in &self.figures {
            object.insert(name.clone(), json!((value * 1_000.0).round() / 1_000.0));
        }
        object.insert("rounds".into(), json!(self.rounds));
        object.insert(self.database.key.into(), json!(self.database.version));
        object.insert("cores".into(), json!(std::thread::available_parallelism().map_or(0, usize::from)));
        Value::Object(object)
    }
}

fn shown(value: f64, goal: Option<Goal>) -> String {
    let Some(goal) = goal else { return String::new() };
    let missed = if goal.is_met(value) { "" } else { "   MISSED" };
    match goal {
        Goal::AtLeast(least) => format!("   goal ≥ {least}{missed}"),
        Goal::AtMost(most) => format!("   goal ≤ {most}{missed}"),
    }
}

/// The middle of the values; of an even number, the upper one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The value below which this share of the values lies.
pub(crate) fn percentile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let place = ((values.len() as f64 * share).ceil() as usize).saturating_sub(1);
    values.get(place).copied().unwrap_or(f64::NAN)
}
