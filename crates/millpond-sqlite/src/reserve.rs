//! A file beside the database that holds room for settling and cleaning up when the disk is full: a full disk
//! refuses DELETE as well.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::location::beside;

/// Bytes that are held back for settling and cleaning up, beside those that the next checkpoint may need.
const RESERVE_BYTES: u64 = 8 * 1024 * 1024;

/// Steps in which the reserve grows with the write-ahead log.
const STEP_BYTES: u64 = 4 * 1024 * 1024;

/// A reserve that is this much larger than it must be is cut.
const SLACK_BYTES: u64 = 16 * 1024 * 1024;

/// How often it is tried to fill the reserve again.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// How often it is looked whether another process has given it back.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The reserve of one database file, shared by its processes. While it is filled, sends are accepted; once it was
/// given back, or cannot grow with the write-ahead log, they are refused until it could be filled.
///
/// A checkpoint may lengthen the database by all that is in the write-ahead log. If there were no room for that, it
/// would take the reserve and still not end: the log could not be started anew, and nothing could be settled.
#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
    wal: PathBuf,
    /// Bytes in the file, as far as this process knows; 0 too in a store that does without.
    held: u64,
    filled: bool,
    /// When it was last tried to fill it.
    tried: Option<Instant>,
    /// When it was last looked at.
    looked: Instant,
}

impl Reserve {
    /// The reserve beside `database`, filled if there is room.
    pub(crate) fn beside(database: &Path) -> Self {
        let (path, wal) = (beside(database, "-reserve"), beside(database, "-wal"));
        let mut reserve = Self { path, wal, held: 0, filled: false, tried: None, looked: Instant::now() };
        reserve.ready();
        reserve
    }

    /// Whether sends may be accepted; tries to fill a reserve that is too small, at most once a second if that fails.
    pub(crate) fn ready(&mut self) -> bool {
        if self.filled && LOOK_EVERY <= self.looked.elapsed() {
            self.looked = Instant::now();
            self.filled = !self.was_given_back();
        }
        let wanted = self.wanted();
        let too_small = !self.filled || (0 < self.held && self.held < wanted);
        if too_small && (self.filled || self.tried.is_none_or(|tried| RETRY_EVERY <= tried.elapsed())) {
            self.tried = Some(Instant::now());
            self.filled = self.fill(wanted).map_or_else(|error| !is_full(&error), |()| true);
        } else if wanted + SLACK_BYTES < self.held {
            self.cut(wanted);
        }
        self.filled
    }

    /// Gives the room back to the file system. False when there was none to give.
    pub(crate) fn give_back(&mut self) -> bool {
        let held = std::mem::replace(&mut self.held, 0);
        self.filled = false;
        self.tried = Some(Instant::now());
        held != 0 && File::create(&self.path).is_ok()
    }

    /// Room for work, and for a checkpoint of all that is in the write-ahead log.
    fn wanted(&self) -> u64 {
        let wal = std::fs::metadata(&self.wal).map_or(0, |file| file.len());
        RESERVE_BYTES + wal.next_multiple_of(STEP_BYTES)
    }

    /// Whether another process has given the room back. A store that does without a reserve has no file.
    fn was_given_back(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|file| file.len() == 0)
    }

    fn fill(&mut self, wanted: u64) -> std::io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        self.held = file.metadata()?.len();
        // Trying would fill the disk for a moment, under the feet of those that settle.
        if free_bytes(&file).is_some_and(|free| free < wanted.saturating_sub(self.held)) {
            return Err(ErrorKind::StorageFull.into());
        }
        let filled = allocate(&mut file, self.held, wanted).and_then(|()| file.sync_data());
        // A part of what is missing would take the room that it is meant to hold.
        filled.inspect_err(|_| drop(file.set_len(self.held)))?;
        self.held = self.held.max(wanted);
        Ok(())
    }

    /// Another process may have given it back meanwhile: it is not made longer here.
    fn cut(&mut self, wanted: u64) {
        let cut = || -> std::io::Result<u64> {
            let file = OpenOptions::new().write(true).open(&self.path)?;
            let held = file.metadata()?.len().min(wanted);
            file.set_len(held).map(|()| held)
        };
        self.held = cut().unwrap_or(wanted);
    }
}

/// Makes a file as long as `wanted`, with room on the disk behind every byte. Most file systems do that without
/// writing; on the others zeros are written.
fn allocate(file: &mut File, held: u64, wanted: u64) -> std::io::Result<()> {
    let Some(missing) = wanted.checked_sub(held).filter(|missing| *missing != 0) else { return Ok(()) };
    let allocated = rustix::fs::fallocate(&*file, rustix::fs::FallocateFlags::empty(), held, missing);
    match allocated.map_err(std::io::Error::from) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            let chunk = [0; 64 * 1024];
            (0..missing).step_by(chunk.len()).try_for_each(|_| file.write_all(&chunk))
        }
        allocated => allocated,
    }
}

/// Free bytes of the file system of a file, where that can be told.
fn free_bytes(file: &File) -> Option<u64> {
    let disk = rustix::fs::fstatvfs(file).ok()?;
    disk.f_bavail.checked_mul(disk.f_frsize)
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
        assert_eq!(held.metadata().unwrap().len(), RESERVE_BYTES);
        assert!(reserve.give_back());
        assert_eq!(held.metadata().unwrap().len(), 0);
        assert!(!reserve.give_back(), "there is nothing left to give");
    }

    #[test]
    fn it_grows_and_shrinks_with_the_write_ahead_log() {
        let dir = tempfile::tempdir().unwrap();
        let wal = File::create(dir.path().join("a.db-wal")).unwrap();
        let mut reserve = Reserve::beside(&dir.path().join("a.db"));
        let held = || dir.path().join("a.db-reserve").metadata().unwrap().len();
        wal.set_len(STEP_BYTES + 1).unwrap();
        assert!(reserve.ready());
        assert_eq!(held(), RESERVE_BYTES + 2 * STEP_BYTES);
        wal.set_len(1).unwrap();
        assert!(reserve.ready());
        assert_eq!(held(), RESERVE_BYTES + 2 * STEP_BYTES, "it will be needed again");
        wal.set_len(SLACK_BYTES + STEP_BYTES).unwrap();
        assert!(reserve.ready());
        wal.set_len(0).unwrap();
        assert!(reserve.ready());
        assert_eq!(held(), RESERVE_BYTES);
    }
}
