//! Declarations: the settings of a queue, and what was changed of them at run time.

use millpond_core::error::{Code, Error};
use millpond_core::queue::{Delivery, HistoryLevel, QueueSettings};
use millpond_core::store::{Queue, QueueId};
use millpond_core::text::nearest;
use serde_json::{Map, Value};

/// Settings that a queue has for life.
const FIXED: [&str; 2] = ["delivery", "transactional"];

/// The number of a queue, as a database holds it.
pub fn number(queue: QueueId) -> i32 {
    i32::try_from(queue.0).expect("the database gave it out as a 32-bit number")
}

/// The word of a kind of delivery, as it is stored.
pub const fn delivery_text(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::Dispatch => "dispatch",
    }
}

/// Whether finished claims leave a row of history.
pub fn has_history(settings: &QueueSettings) -> bool {
    settings.events == HistoryLevel::All
}

/// A queue as it is stored.
#[derive(Debug)]
pub struct Stored {
    /// With the settings that count: what was declared, and over it what was changed at run time.
    pub queue: Queue,
    /// What was declared.
    pub declared: QueueSettings,
    /// The word of its kind of delivery.
    pub delivery: String,
    /// What was changed at run time.
    pub changes: Map<String, Value>,
}

impl Stored {
    /// From the texts of its row, and the texts of its changes by the names of their settings.
    ///
    /// # Errors
    ///
    /// `internal` when this release cannot read it.
    pub fn read(
        id: QueueId,
        name: String,
        declared: &str,
        delivery: String,
        changes: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, Error> {
        // What cannot be read counts as not changed.
        let changes =
            changes.filter_map(|(setting, value)| Some((setting, serde_json::from_str(&value).ok()?)));
        Self::with(id, name, declared, delivery, changes.collect())
    }

    /// The same with changes that are read already.
    ///
    /// # Errors
    ///
    /// `internal` when this release cannot read it.
    pub fn with(
        id: QueueId,
        name: String,
        declared: &str,
        delivery: String,
        changes: Map<String, Value>,
    ) -> Result<Self, Error> {
        let broken = |error| internal(&format!("read the settings of queue `{name}`"), error);
        let declared = declared_settings(declared).map_err(broken)?;
        let changes = known(changes);
        let settings = overlaid(&name, &declared, &changes)?;
        Ok(Self { queue: Queue { id, name, settings }, declared, delivery, changes })
    }
}

/// The text of declared settings.
///
/// # Errors
///
/// `internal` when they have none.
pub fn settings_text(settings: &QueueSettings) -> Result<String, Error> {
    serde_json::to_string(settings).map_err(|error| internal("store a declaration", error))
}

/// Refuses a declaration of another kind of delivery than the stored one.
///
/// # Errors
///
/// `queue-conflict`.
pub fn check_delivery(name: &str, stored: &str, declared: Delivery) -> Result<(), Error> {
    let declared = delivery_text(declared);
    if stored == declared {
        return Ok(());
    }
    let why = format!("it is stored as {stored} and declared as {declared}");
    Err(Error::new(Code::QueueConflict, format!("declare queue `{name}`")).because(why))
}

/// Declared settings with changes over them.
///
/// # Errors
///
/// `internal` when a change is none that its setting can have.
pub fn overlaid(
    name: &str,
    declared: &QueueSettings,
    changes: &Map<String, Value>,
) -> Result<QueueSettings, Error> {
    if changes.is_empty() {
        return Ok(*declared);
    }
    let merged = serde_json::to_value(declared).and_then(|mut settings| {
        if let Some(settings) = settings.as_object_mut() {
            settings.extend(changes.iter().map(|(setting, value)| (setting.clone(), value.clone())));
        }
        serde_json::from_value(settings)
    });
    merged.map_err(|error| internal(&format!("read the changed settings of queue `{name}`"), error))
}

/// Declared settings with changes over them, as [`overlaid`] has them. A declaration that cannot work beside what an
/// operator changed, or beside an `exclusive` that was declared before, is refused.
///
/// # Errors
///
/// `invalid-config`; `internal` when a change is none that its setting can have.
pub fn declared_over(
    name: &str,
    declared: &QueueSettings,
    changes: &Map<String, Value>,
) -> Result<QueueSettings, Error> {
    let settings = overlaid(name, declared, changes)?;
    settings.check_together(name)?;
    Ok(settings)
}

/// Refuses a setting that does not exist, that is fixed, or whose value is none of its kind.
///
/// # Errors
///
/// `invalid-config`.
pub fn check_change(
    doing: &str,
    queue: &str,
    declared: &QueueSettings,
    setting: &str,
    value: Option<&Value>,
) -> Result<(), Error> {
    let wrong = |why: String| Err(Error::new(Code::InvalidConfig, doing).because(why));
    let known = serde_json::to_value(declared).unwrap_or_default();
    let known: Vec<&str> = known.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    if !known.contains(&setting) {
        return wrong(match nearest(setting, &known) {
            Some(near) => format!("there is no setting `{setting}`; did you mean `{near}`?"),
            None => format!("there is no setting `{setting}`; there are {}", known.join(", ")),
        });
    }
    if FIXED.contains(&setting) {
        return wrong(format!("a queue has its `{setting}` from its declaration, for life"));
    }
    let Some(value) = value else { return Ok(()) };
    match overlaid(queue, declared, &Map::from_iter([(setting.to_owned(), value.clone())])) {
        Ok(_) => Ok(()),
        Err(error) => wrong(format!("{setting} cannot be {value}: {}", error.causes())),
    }
}

/// Settings as they were declared, by this release or a later one: what only that one knows is its own affair.
fn declared_settings(text: &str) -> serde_json::Result<QueueSettings> {
    serde_json::from_str(text).or_else(|_| serde_json::from_value(known(serde_json::from_str(text)?).into()))
}

/// The settings that this release knows.
fn known(mut settings: Map<String, Value>) -> Map<String, Value> {
    if let Ok(Value::Object(ours)) = serde_json::to_value(QueueSettings::DEFAULT) {
        settings.retain(|name, _| ours.contains_key(name));
    }
    settings
}

fn internal(doing: &str, error: serde_json::Error) -> Error {
    Error::new(Code::Internal, doing).because(error)
}
