//! A connection, to whoever asks.

use std::ops::Range;

use millpond_core::error::{Code, Error};
use millpond_core::store::Queue;
use millpond_core::time::Timestamp;

use crate::param::Param;
use crate::row::Row;

/// A result of what is read with `R`.
pub type Tried<R, T> = Result<T, <R as Reader>::Fault>;

/// What answers statements by their names. Every store has its own text of them, with the same columns.
pub trait Reader {
    /// A row of an answer.
    type Row: Row;

    /// What may go wrong.
    type Fault: From<Error>;

    /// The rows of a statement.
    fn rows(&self, name: &str, params: &[Param<'_>]) -> impl Future<Output = Tried<Self, Vec<Self::Row>>>;

    /// The time of the store.
    fn time(&self) -> impl Future<Output = Tried<Self, Timestamp>>;

    /// All declared queues that this release can read, by name.
    fn queues(&self) -> impl Future<Output = Tried<Self, Vec<Queue>>>;

    /// The first offset of `range` in a part that was published after `instant`; its end if none was. Offsets are in
    /// the order of publishing, so it is found by halves.
    fn published_after(
        &self,
        partition: i32,
        range: Range<i64>,
        instant: Timestamp,
    ) -> impl Future<Output = Tried<Self, i64>> {
        async move {
            let (mut low, mut high) = (range.start, range.end);
            while low < high {
                let middle = low + (high - low) / 2;
                let row = self.row_if_any("log_published", &[partition.into(), middle.into()]).await?;
                // A row that is missing was deleted, so it is older than any that is kept.
                if row.is_none_or(|row| row.get::<i64>(0) <= instant.as_micros()) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            Ok(low)
        }
    }

    /// The row of a statement that may have one.
    fn row_if_any(
        &self,
        name: &str,
        params: &[Param<'_>],
    ) -> impl Future<Output = Tried<Self, Option<Self::Row>>> {
        async { Ok(self.rows(name, params).await?.into_iter().next()) }
    }

    /// The only row of a statement that always has one.
    fn row(&self, name: &str, params: &[Param<'_>]) -> impl Future<Output = Tried<Self, Self::Row>> {
        async move {
            let missing =
                || Error::new(Code::Internal, format!("run `{name}`")).because("it answered no row");
            Ok(self.row_if_any(name, params).await?.ok_or_else(missing)?)
        }
    }
}
