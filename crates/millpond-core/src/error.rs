//! The one error type, and the closed list of its codes.

use std::error::Error as StdError;
use std::fmt;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The one error type of the public API.
///
/// Match on [`Error::kind`]; print the error, then walk `source()` for the cause. `Display` says what was
/// being tried and never repeats the cause; [`Error::advice`] says what to do.
pub struct Error {
    code: Code,
    doing: String,
    /// Place of the refused item in its batch.
    index: Option<usize>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// Why an operation failed, seen from the caller: each kind calls for a different next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The arguments can never be accepted: change them.
    Invalid,
    /// The named queue, message or worker does not exist.
    NotFound,
    /// The lease is over and the message may be with another worker: stop.
    LeaseLost,
    /// The state of the message, or of the store, does not allow it: look first.
    Conflict,
    /// The store lacks a capability, or refuses to be used like this: change the set-up.
    Unsupported,
    /// The store certainly did nothing: try again later.
    Unavailable,
    /// The store may have done it: repeat with the same message ids.
    Unknown,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $kind:ident, $advice:literal;)*) => {
        /// What went wrong, by a name that does not change. The list is closed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code { $($(#[$doc])* $variant,)* }

        impl Code {
            /// Every code.
            pub const ALL: &[Code] = &[$(Code::$variant,)*];

            /// The code as it is printed, logged and sent.
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $text,)* }
            }

            /// What kind of next step it calls for.
            pub const fn kind(self) -> ErrorKind {
                match self { $(Code::$variant => ErrorKind::$kind,)* }
            }

            /// What a person can do about it, in one sentence.
            pub const fn advice(self) -> &'static str {
                match self { $(Code::$variant => $advice,)* }
            }
        }
    };
}

codes! {
    /// A body at or over the limit of its queue.
    BodyTooLarge = "body-too-large", Invalid, "send a reference to the data instead, or raise the queue's message_limit";
    /// A batch over the limit of one call.
    BatchTooLarge = "batch-too-large", Invalid, "send it in several calls";
    /// A value that has no encoded form.
    NotSerialisable = "not-serialisable", Invalid, "change the value at the path that is named";
    /// A name outside its alphabet or limit.
    InvalidName = "invalid-name", Invalid, "use the characters and the length that are named";
    /// A key outside its limits.
    InvalidKey = "invalid-key", Invalid, "use at most 250 bytes of text without control characters";
    /// A header outside its limits.
    InvalidHeader = "invalid-header", Invalid, "use lower-case names and text values, together at most 16 KiB";
    /// An option outside its range.
    InvalidOption = "invalid-option", Invalid, "use a value inside the range that is named";
    /// A line or body that is not JSON.
    InvalidJson = "invalid-json", Invalid, "correct the text at the place that is named";
    /// The queue is not declared.
    UnknownQueue = "unknown-queue", NotFound, "declare it first: `millpond queue add NAME`, or in code by its `Queue` constant";
    /// The message is not stored, or not any more.
    MessageNotFound = "message-not-found", NotFound, "check the id; settled messages are kept for the queue's retention only";
    /// The dedup key is held by a message with another body.
    DedupConflict = "dedup-conflict", Conflict, "use another key for another message";
    /// The lease is over.
    LeaseLost = "lease-lost", LeaseLost, "stop working on the message; another worker may have it";
    /// The message is done, dead or cancelled already.
    AlreadySettled = "already-settled", Conflict, "look at the message with `millpond message get ID`";
    /// A statement of a handler's own transaction.
    StatementFailed = "statement-failed", Invalid, "correct the statement; what the transaction did before is still in it";
    /// More or fewer rows than the caller expected.
    CountChanged = "count-changed", Conflict, "look again, then repeat with the new count";
    /// The queue is declared with another kind or number of partitions.
    QueueConflict = "queue-conflict", Conflict, "use the stored declaration, or another name";
    /// The pond is closing.
    ShuttingDown = "shutting-down", Unavailable, "send it to another node";
    /// A send outside the handler's own open transaction, which holds the one writer.
    SendInsideTransaction = "send-inside-transaction", Invalid, "send through the unit of work, or after it is committed";
    /// A send outside of any transaction to a queue that is declared `require`.
    TransactionRequired = "transaction-required", Invalid, "send within a transaction: `pond.begin()`, `pond.within(&mut tx)` or plain SQL";
    /// The store cannot be reached, or is too busy.
    StoreUnavailable = "store-unavailable", Unavailable, "try again; nothing was stored";
    /// The answer of a commit was lost.
    UnknownOutcome = "unknown-outcome", Unknown, "repeat with the same message ids or dedup key";
    /// The disk is full.
    StorageFull = "storage-full", Unavailable, "free space on the disk; settling and reading go on meanwhile";
    /// A setting, or a pair of settings, that cannot work.
    InvalidConfig = "invalid-config", Invalid, "change the setting that is named";
    /// The store cannot be opened.
    StoreUnreachable = "store-unreachable", Unavailable, "check the path or URL, and the rights on it";
    /// The store is of a kind that is not supported, or not ours.
    UnsupportedStore = "unsupported-store", Unsupported, "use a store that is supported, in a place that can hold it";
    /// The schema was made by a newer release.
    SchemaNewer = "schema-newer", Unsupported, "upgrade this program; an older one does not touch a newer schema";
    /// The store has no schema yet, or an older one, and may not be migrated here.
    SchemaOlder = "schema-older", Unsupported, "run `millpond migrate up` first";
    /// A handler for a kind or queue that is missing or registered twice.
    HandlerMissing = "handler-missing", Invalid, "register exactly one handler for each kind";
    /// Something that should not be possible.
    Internal = "internal", Unavailable, "report it with the text of the error";
}

impl Code {
    /// The code printed as `text`.
    pub fn parse(text: &str) -> Option<Code> {
        Code::ALL.iter().copied().find(|code| code.as_str() == text)
    }
}

impl Error {
    /// An error of `code` that happened while `doing` (a verb phrase: "send to queue `mail`").
    pub fn new(code: Code, doing: impl Into<String>) -> Self {
        Self { code, doing: doing.into(), index: None, source: None }
    }

    /// The same error with its cause: another error, or a sentence.
    #[must_use]
    pub fn because(mut self, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(cause.into());
        self
    }

    /// The same error about item `index` of a batch.
    #[must_use]
    pub fn at(mut self, index: usize) -> Self {
        self.index = Some(index);
        self
    }

    /// What kind of next step it calls for.
    pub fn kind(&self) -> ErrorKind {
        self.code.kind()
    }

    /// The code, of a closed list.
    pub fn code(&self) -> Code {
        self.code
    }

    /// What was being tried.
    pub fn doing(&self) -> &str {
        &self.doing
    }

    /// The place of the refused item in its batch, if it is about one.
    pub fn index(&self) -> Option<usize> {
        self.index
    }

    /// What to do about it, in one sentence.
    pub fn advice(&self) -> &'static str {
        self.code.advice()
    }

    /// The chain of causes as one line, outermost first.
    pub fn causes(&self) -> String {
        let mut causes = Vec::new();
        let mut next = StdError::source(self);
        while let Some(cause) = next {
            causes.push(cause.to_string());
            next = cause.source();
        }
        causes.join(": ")
    }
}

/// All there is to say, for a `main` that returns the error: what was tried, why it failed, and what to do.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        if self.source.is_some() {
            write!(f, ": {}", self.causes())?;
        }
        write!(f, "; {}", self.advice())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.doing, self.code.as_str())?;
        match self.index {
            Some(index) => write!(f, ", item {index}"),
            None => Ok(()),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_says_what_was_tried_and_source_says_why() {
        let error =
            Error::new(Code::BodyTooLarge, "send to queue `mail`").because("20 bytes, limit 10").at(3);
        assert_eq!(error.to_string(), "send to queue `mail` (body-too-large), item 3");
        assert_eq!(error.causes(), "20 bytes, limit 10");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let all = format!("{error:?}");
        assert!(
            all.starts_with("send to queue `mail` (body-too-large), item 3: 20 bytes, limit 10; send"),
            "{all}"
        );
    }

    #[test]
    fn codes_are_unique_and_come_back_from_their_text() {
        for code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(*code));
        }
    }
}
