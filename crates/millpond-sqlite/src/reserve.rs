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

/// How often it is looked whether another process has given it back.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The reserve of one database file, shared by its processes. While it is filled, sends are accepted; once it was given back, they are
/// refused until it could be filled again.
#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
    filled: bool,
    /// When it was last tried to fill it.
    tried: Option<Instant>,
    /// When it was last looked at.
    looked: Instant,
}

impl Reserve {
    /// The reserve beside `database`, filled if there is room.
    pub(crate) fn beside(database: &Path) -> Self {
        let mut path = database.as_os_str().to_owned();
        path.push("-reserve");
        let mut reserve = Self { path: path.into(), filled: false, tried: None, looked: Instant::now() };
        reserve.ready();
        reserve
    }

    /// Whether sends may be accepted; tries to fill an empty reserve, at most once a second.
    pub(crate) fn ready(&mut self) -> bool {
        if self.filled && LOOK_EVERY <= self.looked.elapsed() {
            self.looked = Instant::now();
            self.filled = !self.was_given_back();
        }
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

    /// Whether another process has given the room back. A store that does without a reserve has no file.
    fn was_given_back(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|file| file.len() == 0)
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
    fn a_process_sees_that_another_one_has_given_it_back() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("a.db");
        let (mut one, mut other) = (Reserve::beside(&database), Reserve::beside(&database));
        assert!(one.give_back());
        other.looked -= LOOK_EVERY;
        other.tried = Some(Instant::now());
        assert!(!other.ready());
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
