//! What programs print, passed on by one thread: whole lines, never two programs in one, and whoever does not read
//! our output holds up the programs that print, as a pipe does, and nothing else.

use std::io::{self, Write as _};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Pieces that wait to be written.
const WAITING_MAX: usize = 64;

/// How long the last of them may take when the worker ends.
const LAST: Duration = Duration::from_secs(1);

/// Whole lines, and where they go.
#[derive(Debug)]
struct Piece {
    lines: Vec<u8>,
    to_stdout: bool,
}

/// The way to the thread.
#[derive(Debug, Clone)]
pub(super) struct Printer(mpsc::Sender<Piece>);

/// Resolves when everything is printed.
#[derive(Debug)]
pub(super) struct Printed(oneshot::Receiver<()>);

impl Printer {
    /// Starts the thread.
    pub(super) fn start() -> io::Result<(Self, Printed)> {
        let (send, mut pieces) = mpsc::channel(WAITING_MAX);
        let (ended, printed) = oneshot::channel();
        let run = move || {
            while let Some(piece) = pieces.blocking_recv() {
                print(&piece);
            }
            let _ = ended.send(());
        };
        std::thread::Builder::new().name("millpond-print".into()).spawn(run)?;
        Ok((Self(send), Printed(printed)))
    }

    /// Passes lines on; waits while too many wait.
    pub(super) async fn print(&self, lines: Vec<u8>, to_stdout: bool) {
        if !lines.is_empty() {
            // The thread ends after us.
            let _ = self.0.send(Piece { lines, to_stdout }).await;
        }
    }
}

impl Printed {
    /// Waits, when nobody can print any more.
    pub(super) async fn wait(self) {
        let _ = timeout(LAST, self.0).await;
    }
}

/// If nobody reads it, the work goes on all the same.
fn print(piece: &Piece) {
    let _ = if piece.to_stdout {
        io::stdout().lock().write_all(&piece.lines)
    } else {
        io::stderr().lock().write_all(&piece.lines)
    };
}
