//! What was measured, with the goal beside it.

use serde_json::{Map, Value, json};

/// Named figures, in the order in which they were measured.
pub(crate) struct Report {
    figures: Vec<Figure>,
    rounds: usize,
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

impl Report {
    pub(crate) fn new(rounds: usize) -> Self {
        Self { figures: Vec::new(), rounds }
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

    /// The version of the database.
    pub(crate) fn server(&self) -> &'static str {
        millpond::sqlite::rusqlite::version()
    }

    /// Everything as one object, to three digits.
    pub(crate) fn json(&self) -> Value {
        let mut object = Map::new();
        for Figure { name, value, .. } in &self.figures {
            object.insert(name.clone(), json!((value * 1_000.0).round() / 1_000.0));
        }
        object.insert("rounds".into(), json!(self.rounds));
        object.insert("sqlite".into(), json!(self.server()));
        object.insert("cores".into(), json!(std::thread::available_parallelism().map_or(0, usize::from)));
        Value::Object(object)
    }
}

fn shown(value: f64, goal: Option<Goal>) -> String {
    match goal {
        None => String::new(),
        Some(Goal::AtLeast(least)) => format!("   goal ≥ {least}{}", missed(value < least)),
        Some(Goal::AtMost(most)) => format!("   goal ≤ {most}{}", missed(most < value)),
    }
}

const fn missed(missed: bool) -> &'static str {
    if missed { "   MISSED" } else { "" }
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
