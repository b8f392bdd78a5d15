//! Lists: the part that is asked for, and the part that is answered.

use crate::query::Query;

/// The part of a list that is asked for.
#[derive(Debug, Clone, Default)]
pub struct Find {
    /// What belongs to the answer.
    pub query: Query,
    /// Goes on after an earlier answer: its [`Found::next`].
    pub after: Option<String>,
    /// Items at most.
    pub rows_max: usize,
    /// Bodies and headers come along; otherwise they are empty.
    pub bodies: bool,
    /// How far matches are counted.
    pub count: Count,
}

/// How far matches are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Count {
    /// Not at all.
    #[default]
    No,
    /// Up to this many: a list says "10 000+".
    UpTo(u64),
    /// All of them: before a bulk action.
    All,
}

/// A part of a list, newest first.
#[derive(Debug, Clone)]
pub struct Found<T> {
    /// The items.
    pub items: Vec<T>,
    /// Matches in all, as far as they were counted.
    pub matched: u64,
    /// `matched` is all there are.
    pub counted_all: bool,
    /// The search ended at its own limit of rows or time before it had seen everything.
    pub cut_short: bool,
    /// For [`Find::after`]; `None`: there is nothing more.
    pub next: Option<String>,
}
