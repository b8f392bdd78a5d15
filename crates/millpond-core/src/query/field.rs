//! The fields of a query: what they are called, what they hold, and which lists have them.

/// What is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// Messages, wherever they are.
    Message,
    /// Dead letters.
    DeadLetter,
    /// Entries of the run log.
    Event,
    /// Rows of the outbox.
    Outbox,
}

/// A field of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    /// No field was named: id, key or error.
    Anything,
    /// The queue.
    Queue,
    /// The name of the work.
    Kind,
    /// The key of the message.
    Key,
    /// The id of the message.
    Id,
    /// The trace id of the message.
    Trace,
    /// The worker that has or had it.
    Worker,
    /// The state of the message.
    State,
    /// Of a dead letter: `open` or `retried`.
    Status,
    /// The kind of an entry of the run log.
    Event,
    /// Why it waits, came back or left.
    Reason,
    /// The text of the last error.
    Error,
    /// The class of the last error.
    Class,
    /// The group of like errors.
    Fingerprint,
    /// Attempts so far.
    Attempt,
    /// How long it waited from due to leased, or waits.
    Wait,
    /// How long the last run took.
    Run,
    /// How long ago it was sent.
    Age,
    /// When it was sent.
    Sent,
    /// When it is due.
    Due,
    /// When it became a dead letter.
    Died,
    /// When an entry of the run log was written.
    At,
    /// A header, by its name.
    Header(String),
    /// A value in a JSON body, by its path.
    Body(Vec<String>),
}

/// What the values of a field look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A text that is compared whole, or by its beginning.
    Name,
    /// A text in which a part is looked for.
    Prose,
    /// One of a closed list.
    Word(&'static [&'static str]),
    /// A whole number.
    Count,
    /// A duration.
    Span,
    /// An instant.
    Instant,
}

const STATES: &[&str] = &["scheduled", "retrying", "ready", "leased", "done", "dead", "cancelled"];
const STATUSES: &[&str] = &["open", "retried", "cancelled"];
const EVENTS: &[&str] = &["ENQUEUE", "START", "SUCCESS", "RETRY", "DLQ", "RECOVER"];

/// Names of fields with a fixed name, in the order in which they are listed.
const NAMED: [(&str, Field); 21] = [
    ("queue", Field::Queue),
    ("kind", Field::Kind),
    ("key", Field::Key),
    ("id", Field::Id),
    ("trace", Field::Trace),
    ("worker", Field::Worker),
    ("state", Field::State),
    ("status", Field::Status),
    ("event", Field::Event),
    ("reason", Field::Reason),
    ("error", Field::Error),
    ("class", Field::Class),
    ("fingerprint", Field::Fingerprint),
    ("attempt", Field::Attempt),
    ("wait", Field::Wait),
    ("run", Field::Run),
    ("age", Field::Age),
    ("sent", Field::Sent),
    ("due", Field::Due),
    ("died", Field::Died),
    ("at", Field::At),
];

impl Field {
    /// The field of this name.
    pub fn parse(name: &str) -> Option<Self> {
        if let Some(header) = name.strip_prefix("header.").filter(|header| !header.is_empty()) {
            return Some(Field::Header(header.to_owned()));
        }
        if let Some(path) = name.strip_prefix("body.").filter(|path| !path.is_empty()) {
            return Some(Field::Body(path.split('.').map(str::to_owned).collect()));
        }
        NAMED.iter().find(|(known, _)| *known == name).map(|(_, field)| field.clone())
    }

    /// What its values look like.
    pub const fn shape(&self) -> Shape {
        match self {
            Field::Anything | Field::Error => Shape::Prose,
            Field::Queue | Field::Kind | Field::Key | Field::Id | Field::Trace | Field::Worker => Shape::Name,
            Field::Reason | Field::Class | Field::Fingerprint | Field::Header(_) | Field::Body(_) => {
                Shape::Name
            }
            Field::State => Shape::Word(STATES),
            Field::Status => Shape::Word(STATUSES),
            Field::Event => Shape::Word(EVENTS),
            Field::Attempt => Shape::Count,
            Field::Wait | Field::Run | Field::Age => Shape::Span,
            Field::Sent | Field::Due | Field::Died | Field::At => Shape::Instant,
        }
    }
}

impl Subject {
    /// Whether its list has a field.
    pub const fn has(self, field: &Field) -> bool {
        match field {
            Field::Anything | Field::Queue | Field::Kind | Field::Key | Field::Id | Field::Reason => true,
            Field::Error | Field::Attempt | Field::Trace => true,
            Field::Header(_) | Field::Body(_) | Field::Sent | Field::Age => !matches!(self, Subject::Event),
            Field::Worker => matches!(self, Subject::Message | Subject::Event | Subject::DeadLetter),
            Field::State | Field::Wait => matches!(self, Subject::Message),
            Field::Run => matches!(self, Subject::Message | Subject::Event),
            Field::Due => matches!(self, Subject::Message | Subject::Outbox),
            Field::Status | Field::Class | Field::Fingerprint | Field::Died => {
                matches!(self, Subject::DeadLetter)
            }
            Field::Event | Field::At => matches!(self, Subject::Event),
        }
    }

    /// The names of the fields of its list; `header.NAME` and `body.PATH` stand for all of theirs.
    pub fn field_names(self) -> Vec<&'static str> {
        let own = NAMED.iter().filter(|(_, field)| self.has(field)).map(|(name, _)| *name);
        let open = ["header.NAME", "body.PATH"].into_iter().filter(|_| self != Subject::Event);
        own.chain(open).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::EventKind;
    use crate::state::State;

    #[test]
    fn closed_lists_are_those_of_the_model() {
        let states = [
            State::Scheduled,
            State::Retrying,
            State::Ready,
            State::Leased,
            State::Done,
            State::Dead,
            State::Cancelled,
        ];
        assert_eq!(states.map(State::as_str), STATES);
        assert_eq!(EventKind::ALL.iter().map(|kind| kind.as_str()).collect::<Vec<_>>(), EVENTS);
    }

    #[test]
    fn every_name_comes_back() {
        for (name, field) in &NAMED {
            assert_eq!(Field::parse(name).as_ref(), Some(field));
        }
        assert_eq!(Field::parse("header.tenant"), Some(Field::Header("tenant".into())));
        assert_eq!(Field::parse("body.user.plan"), Some(Field::Body(vec!["user".into(), "plan".into()])));
        assert_eq!(Field::parse("body."), None);
    }
}
