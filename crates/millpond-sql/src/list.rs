//! The part of a list that is asked for: a search from the newest on, within limits.

use std::time::{Duration, Instant};

use millpond_core::error::{Code, Error};
use millpond_core::view::{Count, Find, Found};

/// Rows that one search looks at.
const ROWS_MAX: u64 = 100_000;

/// How long one search takes.
const TIME_MAX: Duration = Duration::from_secs(2);

/// How long it takes to count everything, before a bulk action: then the number of rows has no limit.
const COUNT_TIME_MAX: Duration = Duration::from_secs(60);

/// Rows between two looks at the time.
const LOOKS: u64 = 256;

/// Where an entry stands in its list, the largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// Microseconds.
    pub at: i64,
    /// Orders what one message did in one instant.
    pub step: u64,
    /// Orders the rest.
    pub id: u128,
}

impl Mark {
    /// Larger than any.
    pub const TOP: Self = Self { at: i64::MAX, step: u64::MAX, id: u128::MAX };

    /// That of an entry alone in its instant.
    pub const fn new(at: i64, id: u128) -> Self {
        Self { at, step: 0, id }
    }

    /// The text of [`Find::after`] and [`Found::next`].
    pub fn text(self) -> String {
        let Self { at, step, id } = self;
        format!("{at}.{step}.{id:x}")
    }

    /// What a caller gave back.
    ///
    /// # Errors
    ///
    /// `invalid-option` when it is no such text.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let read = || {
            let mut parts = text.splitn(3, '.');
            let (at, step, id) = (parts.next()?, parts.next()?, parts.next()?);
            let id = u128::from_str_radix(id, 16).ok()?;
            Some(Self { at: at.parse().ok()?, step: step.parse().ok()?, id })
        };
        let refused = || Error::new(Code::InvalidOption, "go on with a list");
        read().ok_or_else(|| refused().because("the cursor is none that a list has answered"))
    }
}

/// Collects the page of a list from what a search finds, largest mark first.
pub struct Gather<T> {
    rows_max: usize,
    count: Count,
    after: Option<Mark>,
    began: Instant,
    looked: u64,
    reached: Option<Mark>,
    items: Vec<(Mark, T)>,
    matched: u64,
    more: bool,
    cut_short: bool,
}

impl<T> Gather<T> {
    /// `after`: the parsed cursor of `find`.
    pub fn new(find: &Find, after: Option<Mark>) -> Self {
        Self {
            rows_max: find.rows_max,
            count: find.count,
            after,
            began: Instant::now(),
            looked: 0,
            reached: None,
            items: Vec::new(),
            matched: 0,
            more: false,
            cut_short: false,
        }
    }

    /// Everything below this is looked at: all, if matches are counted, else what follows the cursor.
    pub fn from(&self) -> Mark {
        match (self.count, self.after) {
            (Count::No, Some(after)) => after,
            _ => Mark::TOP,
        }
    }

    /// Whether the page has all its rows; what follows is only counted.
    pub fn is_full(&self) -> bool {
        self.items.len() == self.rows_max
    }

    /// Counts a row that is looked at; false: the search is over its limit and ends before this row.
    pub fn look(&mut self) -> bool {
        self.looked += 1;
        let all = self.count == Count::All;
        let time_max = if all { COUNT_TIME_MAX } else { TIME_MAX };
        let late = self.looked.is_multiple_of(LOOKS) && time_max < self.began.elapsed();
        self.cut_short |= late || (!all && ROWS_MAX < self.looked);
        !self.cut_short
    }

    /// The row that was looked at does not match: the next page need not look at it again.
    pub fn pass(&mut self, mark: Mark) {
        self.reached = Some(mark);
    }

    /// Whether an entry that matches belongs to the page: only then its item is made.
    pub fn wants(&self, mark: Mark) -> bool {
        self.follows(mark) && self.items.len() < self.rows_max
    }

    /// An entry that matches, with its item if that is wanted; false: the search has what it was asked for.
    pub fn take(&mut self, mark: Mark, item: Option<T>) -> bool {
        self.matched += 1;
        self.reached = Some(mark);
        match item {
            Some(item) => self.items.push((mark, item)),
            None => self.more |= self.follows(mark),
        }
        !match self.count {
            Count::No => self.more,
            Count::UpTo(most) => self.more && most < self.matched,
            Count::All => false,
        }
    }

    fn follows(&self, mark: Mark) -> bool {
        self.after.is_none_or(|after| mark < after)
    }

    /// The page, with the cursor of the next one.
    pub fn found(self) -> Found<T> {
        let last = self.items.last().map(|(mark, _)| *mark);
        let next = if self.more { last } else { self.reached.filter(|_| self.cut_short) };
        let (matched, counted_all) = match self.count {
            Count::No => (self.items.len() as u64, false),
            Count::UpTo(most) => (self.matched.min(most), self.matched <= most && !self.cut_short),
            Count::All => (self.matched, !self.cut_short),
        };
        Found {
            items: self.items.into_iter().map(|(_, item)| item).collect(),
            matched,
            counted_all,
            cut_short: self.cut_short,
            next: next.map(Mark::text),
        }
    }
}

/// The parsed cursor of a list.
///
/// # Errors
///
/// `invalid-option` when it is none.
pub fn after(find: &Find) -> Result<Option<Mark>, Error> {
    find.after.as_deref().map(Mark::parse).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(find: &Find, rows: u64) -> Found<u64> {
        let mut gather = Gather::new(find, after(find).unwrap());
        for row in (0..rows).rev() {
            let mark = Mark::new(row as i64, 7);
            if mark >= gather.from() {
                continue;
            }
            let item = gather.wants(mark).then_some(row);
            if !gather.look() || !gather.take(mark, item) {
                break;
            }
        }
        gather.found()
    }

    #[test]
    fn a_mark_comes_back_from_its_text() {
        let mark = Mark { at: -5, step: 9, id: u128::MAX };
        assert_eq!(Mark::parse(&mark.text()).unwrap(), mark);
        for text in ["", "1", "1.2", "x.0.0", "1.2.3.4"] {
            assert!(Mark::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn pages_follow_each_other_to_the_end() {
        let mut find = Find { rows_max: 2, ..Find::default() };
        let mut seen = Vec::new();
        loop {
            let found = search(&find, 5);
            seen.extend(found.items);
            let Some(next) = found.next else { break };
            find.after = Some(next);
        }
        assert_eq!(seen, [4, 3, 2, 1, 0]);
    }

    #[test]
    fn matches_are_counted_as_far_as_was_asked_on_every_page() {
        let find = Find { rows_max: 2, count: Count::UpTo(3), ..Find::default() };
        let first = search(&find, 5);
        assert_eq!((first.matched, first.counted_all), (3, false));
        let second = search(&Find { after: first.next, count: Count::UpTo(10), ..find.clone() }, 5);
        assert_eq!((second.items, second.matched, second.counted_all), (vec![2, 1], 5, true));
        let all = search(&Find { rows_max: 0, count: Count::All, ..find }, 150_000);
        assert_eq!((all.matched, all.counted_all, all.cut_short), (150_000, true, false));
    }

    #[test]
    fn a_search_that_is_too_broad_is_cut_short_and_can_go_on() {
        let find = Find { rows_max: 1, count: Count::UpTo(1_000_000), ..Find::default() };
        let cut = search(&find, 150_000);
        assert_eq!((cut.matched, cut.counted_all, cut.cut_short), (ROWS_MAX, false, true));
        assert!(cut.next.is_some());
    }
}
