//! A file beside the database that holds room for settling and cleaning up when the disk is full: a full disk
//! refuses DELETE as well.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes that are held back.
const RESERVE_BYTES: usize = 8 * 1024 * 1024;

/// How often it is tried to fill the reserve again.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// The reserve of one database file. While it is filled, sends are accepted; once it was given back, they are
/// refused until it could be filled again.
#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
    filled: bool,
    tried: Option<Instant>,
}

impl Reserve {
    /// The reserve beside `database`, filled if there is room.
    pub(crate) fn beside(database: &Path) -> Self {
        let mut path = database.as_os_str().to_owned();
        path.push("-reserve");
        let mut reserve = Self { path: path.into(), filled: false, tried: None };
        reserve.ready();
        reserve
    }

    /// Whether sends may be accepted; tries to fill an empty reserve, at most once a second.
    pub(crate) fn ready(&mut self) -> bool {
        if !self.filled && self.tried.is_none_or(|tried| RETRY_EVERY <= tried.elapsed()) {
            self.tried = Some(Instant::now());
            self.filled = self.fill().map_or_else(|error| !is_full(&error), |()| true);
        }
        self.filled
    }

    /// Gives the room back to the file system. False when there was none to give.
    pub(crate) fn give_back(&mut self) -> bool {
        let held = std::mem::replace(&mut self.filled, false);
        self.tried = Some(Instant::now());
        held && File::create(&self.path).is_ok()
    }

    fn fill(&self) -> std::io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        let held = usize::try_from(file.metadata()?.len()).unwrap_or(RESERVE_BYTES);
        let chunk = [0; 64 * 1024];
        let filled = (held..RESERVE_BYTES).step_by(chunk.len()).try_for_each(|_| file.write_all(&chunk));
        // Half a reserve would take the room that it is meant to hold.
        filled.and_then(|()| file.sync_data()).inspect_err(|_| drop(file.set_len(0)))
    }
}

/// Whether room is what is missing. Where a reserve cannot be made for another reason, such as missing rights, the
/// store does without one, and what is wrong shows where it matters.
fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_cannot_have_one_does_without() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Reserve::beside(&dir.path().join("missing/a.db")).ready());
    }

    #[test]
    fn it_holds_room_and_gives_it_back_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut reserve = Reserve::beside(&dir.path().join("a.db"));
        let held = dir.path().join("a.db-reserve");
        assert!(reserve.ready());
        assert_eq!(held.metadata().unwrap().len(), RESERVE_BYTES as u64);
        assert!(reserve.give_back());
        assert_eq!(held.metadata().unwrap().len(), 0);
        assert!(!reserve.give_back(), "there is nothing left to give");
    }
}
