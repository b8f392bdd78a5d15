//! Commands that an answer recommends: each works when it is pasted into the shell that asked.

use crate::Context;

/// Writes commands that meet the store that was asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Paste {
    /// Flags that name the store, with a blank before each.
    store: String,
}

impl Paste {
    /// For the store of this command.
    pub(crate) fn of(context: &Context) -> Self {
        Self { store: context.config.same_store() }
    }

    /// The command of these words.
    pub(crate) fn line(&self, words: &str) -> String {
        format!("millpond {words}{}", self.store)
    }
}
