//! Wishes of workers: what they read with their next renewal.

use millpond_core::store::Act;
use millpond_core::view::Wish;
use rusqlite::params;

use crate::error::Tried;
use crate::sql::sql;
use crate::writer::Tx;

impl Tx<'_> {
    /// Wishes something of one worker that lives, or of all; answers how many there are.
    pub(crate) fn steer(&self, worker: Option<&str>, wish: Option<Wish>, act: &Act) -> Tried<u64> {
        let wish = wish.map(Wish::as_str);
        let concerned = self.conn.prepare_cached(sql("worker_wish"))?.execute(params![
            worker,
            wish,
            self.now.as_micros()
        ])? as u64;
        // They look at once, and not with their next renewal.
        self.raise_declarations()?;
        self.audit(act, concerned)?;
        Ok(concerned)
    }
}
