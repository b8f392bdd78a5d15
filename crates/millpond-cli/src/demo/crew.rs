//! The worker processes of a demo, and their supervisor: it starts them, begins a new one for each that died,
//! kills one when it is told to, and leaves none behind.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use millpond::{Code, Error, Result};

use crate::demo::ledger::{Cause, Ledger, Life};
use crate::demo::report::Report;
use crate::demo::screen::Screen;

/// Worker processes at a time.
pub(crate) const WORKERS: usize = 2;

/// How often the supervisor looks at its processes.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Starts in all: far more than the messages that kill can use up.
const LIVES_MAX: u32 = 50;

/// How long a worker may take to end when it is asked to.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Lines of one process's standard error that are shown.
const SAID_MAX: usize = 20;

/// The book, shared by the supervisor, its readers and the sender.
pub(crate) type Book = Arc<Mutex<Ledger>>;

/// The book, whatever happened to others who held it.
pub(crate) fn open(book: &Book) -> MutexGuard<'_, Ledger> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the supervisor is told.
const WATCH: u8 = 0;
/// Let the workers end.
const STOP: u8 = 1;
/// End them.
const ABANDON: u8 = 2;

/// The workers. Dropped, it ends them.
#[derive(Debug)]
pub(crate) struct Crew {
    orders: Arc<Orders>,
    supervisor: Option<JoinHandle<Result<()>>>,
}

#[derive(Debug)]
struct Orders {
    order: AtomicU8,
    /// Kill a worker when so many deliveries have worked.
    kill_at: AtomicUsize,
}

impl Crew {
    /// Starts the workers on a store.
    ///
    /// # Errors
    ///
    /// The system starts no process.
    pub(crate) fn start(store: &str, book: &Book, screen: &Arc<Screen>) -> Result<Self> {
        let orders = Arc::new(Orders { order: AtomicU8::new(WATCH), kill_at: AtomicUsize::new(usize::MAX) });
        let mut supervisor = Supervisor {
            store: store.to_owned(),
            book: Arc::clone(book),
            screen: Arc::clone(screen),
            orders: Arc::clone(&orders),
            seats: Vec::new(),
            lives: 0,
        };
        for _ in 0..WORKERS {
            let seat = supervisor.begin()?;
            supervisor.seats.push(seat);
        }
        let supervisor = thread::Builder::new()
            .name("demo-crew".to_owned())
            .spawn(move || supervisor.run())
            .map_err(|error| failed("start the supervisor of the demo", error))?;
        Ok(Self { orders, supervisor: Some(supervisor) })
    }

    /// Kills a worker once so many deliveries have worked.
    pub(crate) fn kill_one_at(&self, worked: usize) {
        self.orders.kill_at.store(worked, Ordering::Relaxed);
    }

    /// Whether the worker that was to be killed has been.
    pub(crate) fn has_killed(&self) -> bool {
        self.orders.kill_at.load(Ordering::Relaxed) == usize::MAX
    }

    /// Whether the supervisor gave up.
    pub(crate) fn has_ended(&self) -> bool {
        self.supervisor.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Lets the workers end, ends those that do not, and waits until all they told is in the book.
    ///
    /// # Errors
    ///
    /// Why the supervisor gave up.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.end(STOP)
    }

    fn end(&mut self, order: u8) -> Result<()> {
        self.orders.order.fetch_max(order, Ordering::Relaxed);
        let Some(supervisor) = self.supervisor.take() else { return Ok(()) };
        supervisor.join().unwrap_or_else(|_| {
            Err(Error::new(Code::Internal, "supervise the workers of the demo").because("it panicked"))
        })
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        // A supervisor that is still there has nothing to say that a caller waits for.
        let _ = self.end(ABANDON);
    }
}

struct Supervisor {
    store: String,
    book: Book,
    screen: Arc<Screen>,
    orders: Arc<Orders>,
    seats: Vec<Seat>,
    lives: u32,
}

/// One worker process.
struct Seat {
    life: Life,
    child: Child,
    /// It ends when this does.
    input: Option<ChildStdin>,
    readers: Vec<JoinHandle<()>>,
    killed: bool,
}

impl Supervisor {
    fn run(mut self) -> Result<()> {
        while self.orders.order.load(Ordering::Relaxed) == WATCH {
            self.kill_if_due();
            self.replace_dead()?;
            thread::sleep(LOOK_EVERY);
        }
        if self.orders.order.load(Ordering::Relaxed) == STOP {
            self.let_end();
        }
        Ok(())
    }

    fn kill_if_due(&mut self) {
        if open(&self.book).worked < self.orders.kill_at.load(Ordering::Relaxed) {
            return;
        }
        self.orders.kill_at.store(usize::MAX, Ordering::Relaxed);
        let seat = &mut self.seats[0];
        seat.killed = seat.child.kill().is_ok();
    }

    fn replace_dead(&mut self) -> Result<()> {
        for number in 0..self.seats.len() {
            let ended = self.seats[number].child.try_wait();
            let ended = ended.map_err(|error| failed("wait for a worker of the demo", error))?;
            if let Some(status) = ended {
                self.bury(number, status);
                self.seats[number] = self.begin()?;
                let pid = self.seats[number].child.id();
                self.screen.event(&format!("worker {} restarted (pid {pid})", number + 1));
            }
        }
        Ok(())
    }

    /// Writes the death of a process into the book, behind all that it told.
    fn bury(&mut self, number: usize, status: ExitStatus) {
        let seat = &mut self.seats[number];
        seat.read_to_the_end();
        let mut book = open(&self.book);
        let (cause, told) = match book.killer_of(seat.life) {
            _ if seat.killed => (
                Cause::Demo,
                "killed by us; what it held comes back when its lease of 2 s is over".to_owned(),
            ),
            Some(id) => (Cause::Message(id), format!("died: killed by message {id}")),
            None => (Cause::Unknown, format!("died: {status}")),
        };
        book.died(seat.life, cause);
        drop(book);
        self.screen.event(&format!("worker {} (pid {}) {told}", number + 1, seat.child.id()));
    }

    fn begin(&mut self) -> Result<Seat> {
        if self.lives == LIVES_MAX {
            let why = format!("they died {LIVES_MAX} times");
            return Err(Error::new(Code::Internal, "keep the workers of the demo alive").because(why));
        }
        self.lives += 1;
        let life = Life(self.lives);
        let mut child = self.spawn(life).map_err(|error| failed("start a worker of the demo", error))?;
        let input = child.stdin.take();
        let told = child.stdout.take().map(|output| {
            let book = Arc::clone(&self.book);
            thread::spawn(move || take_down(life, output, &book))
        });
        let said = child.stderr.take().map(|output| {
            let screen = Arc::clone(&self.screen);
            thread::spawn(move || show(life, output, &screen))
        });
        let readers = told.into_iter().chain(said).collect();
        Ok(Seat { life, child, input, readers, killed: false })
    }

    fn spawn(&self, life: Life) -> std::io::Result<Child> {
        Command::new(std::env::current_exe()?)
            .args(["demo-worker", "--life", &life.0.to_string(), "--at", &self.store])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A Ctrl-C is for the demo, which ends its workers itself.
            .process_group(0)
            .spawn()
    }

    /// Closes the workers' inputs and waits for them, within a limit.
    fn let_end(&mut self) {
        let until = Instant::now() + STOP_LIMIT;
        for seat in &mut self.seats {
            seat.input = None;
        }
        let runs = |seat: &mut Seat| matches!(seat.child.try_wait(), Ok(None));
        while Instant::now() < until
            && self.orders.order.load(Ordering::Relaxed) == STOP
            && self.seats.iter_mut().any(runs)
        {
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Seat {
    /// Its output ends with it.
    fn read_to_the_end(&mut self) {
        for reader in self.readers.drain(..) {
            // A reader that panicked leaves deliveries out of the book, which the check finds.
            let _ = reader.join();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // Both answer an error if it has ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.read_to_the_end();
    }
}

/// Writes what a worker tells into the book.
fn take_down(life: Life, output: impl Read, book: &Book) {
    let mut lines = BufReader::with_capacity(64 * 1024, output);
    let mut line = String::new();
    while matches!(lines.read_line(&mut line), Ok(1..)) {
        if let Some(report) = Report::parse(&line) {
            open(book).told(life, report);
        }
        line.clear();
    }
}

/// Shows the first lines that a worker writes to its standard error, and reads the others.
fn show(life: Life, output: impl Read, screen: &Screen) {
    for (index, line) in BufReader::new(output).lines().map_while(std::io::Result::ok).enumerate() {
        if index < SAID_MAX {
            screen.event(&format!("process {} says: {line}", life.0));
        }
    }
}

fn failed(doing: &str, error: std::io::Error) -> Error {
    Error::new(Code::Internal, doing).because(error)
}
