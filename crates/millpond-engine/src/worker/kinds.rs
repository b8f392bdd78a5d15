//! Which handler a kind of one queue has here.

use std::collections::HashMap;
use std::sync::Arc;

use crate::handler::Bound;

/// The handlers of one queue, by the name of the work.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    /// For messages whose kind is the queue's own name.
    own: Option<Bound>,
    by_name: HashMap<Arc<str>, Bound>,
    /// For every other kind.
    any: Option<Bound>,
}

impl Kinds {
    /// Registers a handler; `None` is the queue's own kind. False when there is one already.
    pub(crate) fn add(&mut self, kind: Option<&str>, handler: Bound) -> bool {
        match kind {
            None => self.own.replace(handler).is_none(),
            Some(kind) => self.by_name.insert(kind.into(), handler).is_none(),
        }
    }

    /// The names of the work that it knows in the queue `own`; none: any.
    pub(crate) fn names(&self, own: &str) -> Vec<String> {
        if self.any.is_some() {
            return Vec::new();
        }
        let own = self.own.as_ref().map(|_| own.to_owned());
        let mut names: Vec<String> = self.by_name.keys().map(|kind| kind.to_string()).chain(own).collect();
        names.sort();
        names
    }

    /// Registers the handler of every kind that has none of its own.
    pub(crate) fn add_any(&mut self, handler: Bound) -> bool {
        self.any.replace(handler).is_none()
    }

    /// Most messages of one call of any of its handlers.
    pub(crate) fn messages_max(&self) -> usize {
        let handlers = self.own.iter().chain(self.by_name.values()).chain(&self.any);
        handlers.map(Bound::messages_max).max().unwrap_or(1)
    }

    /// The kind as it is shared, and its handler. A message without a kind has the queue's own.
    pub(crate) fn find(&self, kind: Option<&str>) -> (Option<Arc<str>>, Option<&Bound>) {
        let Some(kind) = kind else { return (None, self.own.as_ref().or(self.any.as_ref())) };
        match self.by_name.get_key_value(kind) {
            Some((kind, handler)) => (Some(Arc::clone(kind)), Some(handler)),
            None => (Some(kind.into()), self.any.as_ref()),
        }
    }
}
