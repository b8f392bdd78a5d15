//! The guard: a process that outlives the worker and ends the programs it left behind.
//!
//! A worker that is killed with SIGKILL can end nothing. `PR_SET_PDEATHSIG` would end the shell and not what it
//! started, and it fires when the *thread* that forked ends, which says little in a pool of threads. So the worker
//! starts this process first and tells it through a pipe of each run: announced, started as this group, over. When
//! the pipe ends, the worker is gone: what is not over gets SIGTERM, the grace, and SIGKILL.
//!
//! Between the start of a program and the word of it the worker may die. Therefore a run is announced before, and
//! each program carries the mark of its run in its environment, by which the guard finds it in `/proc`; so are
//! children found that left their group. Without `/proc` the guard knows the groups alone.

use std::collections::HashMap;
use std::io::{self, BufRead as _, PipeWriter, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Done, Exit, Failure};

/// The variable that holds the mark of a run.
pub(super) const MARK: &str = "MILLPOND_RUN";

/// How often the guard looks whether groups have ended, and for marks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How often marks are looked for at most.
const LOOKS_MAX: usize = 10;

/// What the guard is told when nothing is to be waited for.
const AT_ONCE: &str = "!";

/// What the guard is started with.
#[derive(Debug, clap::Args)]
pub(crate) struct GuardArgs {
    /// From SIGTERM to SIGKILL
    #[arg(long)]
    grace_ms: u64,
}

/// The worker's side of it.
#[derive(Debug)]
pub(super) struct Guard {
    grace: Duration,
    /// Begins the marks of this worker.
    name: String,
    runs: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    process: Option<Process>,
    live: HashMap<u64, Option<Pid>>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    pipe: PipeWriter,
}

/// One run, as the guard knows it. Dropped, it is over.
#[derive(Debug)]
pub(super) struct Run {
    guard: Arc<Guard>,
    number: u64,
}

impl Guard {
    /// Starts the process.
    pub(super) fn start(grace: Duration) -> Result<Arc<Self>, Failure> {
        let born = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let process = Process::start(grace).map_err(|error| {
            Failure::new(Exit::Failed, "internal", "cannot start the guard of the programs")
                .why(error.to_string())
        })?;
        Ok(Arc::new(Self {
            grace,
            name: format!("{}-{born}", std::process::id()),
            runs: AtomicU64::new(0),
            inner: Mutex::new(Inner { process: Some(process), live: HashMap::new() }),
        }))
    }

    /// A program is about to be started.
    pub(super) fn announce(self: &Arc<Self>) -> Run {
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        self.note(number, Some(None));
        Run { guard: Arc::clone(self), number }
    }

    /// Kills every program that runs, at once. The process is about to end; what is missed here, the guard finds.
    pub(super) fn kill_all(&self) {
        let mut inner = self.lock();
        if let Some(process) = &mut inner.process {
            let _ = process.pipe.write_all(format!("{AT_ONCE} all\n").as_bytes());
        }
        inner.live.values().flatten().for_each(|group| signal_group(*group, Signal::KILL));
    }

    fn mark(&self, number: u64) -> String {
        format!("{}-{number}", self.name)
    }

    /// A run was announced, has started, or is over (`None`).
    fn note(&self, number: u64, state: Option<Option<Pid>>) {
        let mut inner = self.lock();
        match state {
            Some(group) => inner.live.insert(number, group),
            None => inner.live.remove(&number),
        };
        let told =
            inner.process.as_mut().is_some_and(|process| process.tell(&self.mark(number), state).is_ok());
        if !told {
            self.begin_again(&mut inner);
        }
    }

    /// Somebody ended the guard, or it does not read: a new one is told everything.
    fn begin_again(&self, inner: &mut Inner) {
        if let Some(old) = inner.process.take() {
            old.end();
        }
        let started = Process::start(self.grace).and_then(|mut process| {
            inner
                .live
                .iter()
                .try_for_each(|(number, group)| process.tell(&self.mark(*number), Some(*group)))?;
            Ok(process)
        });
        match started {
            Ok(process) => inner.process = Some(process),
            Err(error) => {
                tracing::warn!(%error, "no guard: were this worker killed, its programs would go on")
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Run {
    /// What the program carries in [`MARK`].
    pub(super) fn mark(&self) -> String {
        self.guard.mark(self.number)
    }

    /// The program runs.
    pub(super) fn started(&self, group: Option<Pid>) {
        self.guard.note(self.number, Some(group));
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.guard.note(self.number, None);
    }
}

impl Process {
    /// In a group of its own, so that a Ctrl-C at the worker's terminal is not for it.
    fn start(grace: Duration) -> io::Result<Self> {
        let (read, pipe) = io::pipe()?;
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let mut command = Command::new(own_program()?);
        command.arg("work-guard").arg("--grace-ms").arg(grace.as_millis().to_string());
        command.stdin(read).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/").process_group(0);
        Ok(Self { child: command.spawn()?, pipe })
    }

    /// A short line: written as a whole or not at all.
    fn tell(&mut self, mark: &str, state: Option<Option<Pid>>) -> io::Result<()> {
        let line = match state {
            Some(None) => format!("? {mark}\n"),
            Some(Some(group)) => format!("+ {mark} {}\n", group.as_raw_nonzero()),
            None => format!("- {mark}\n"),
        };
        self.pipe.write_all(line.as_bytes())
    }

    /// Ends it before it could take the end of its pipe for ours.
    fn end(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program that runs, also when its file was replaced meanwhile.
fn own_program() -> io::Result<std::path::PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}

/// The guard's own side: hears of runs until the worker is gone, then ends what is not over.
pub(crate) fn guard(args: &GuardArgs) -> Done {
    // Whoever stops a whole service sends these to every process of it. The worker decides, and our pipe tells.
    let listen = |kind| signal(kind).ok();
    let _deaf = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(listen);
    let mut live: HashMap<String, Option<Pid>> = HashMap::new();
    let mut grace = Duration::from_millis(args.grace_ms);
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let mut words = line.split(' ');
        let (Some(what), Some(mark)) = (words.next(), words.next()) else { continue };
        if what == AT_ONCE {
            grace = Duration::ZERO;
        } else if what == "-" {
            live.remove(mark);
        } else {
            let group = words.next().and_then(|group| group.parse().ok()).and_then(Pid::from_raw);
            live.insert(mark.to_owned(), group);
        }
    }
    if !live.is_empty() {
        end(&live, grace);
    }
    Ok(ExitCode::SUCCESS)
}

fn end(live: &HashMap<String, Option<Pid>>, grace: Duration) {
    let marks: Vec<String> = live.keys().cloned().collect();
    let groups = || live.values().flatten().copied();
    if !grace.is_zero() {
        groups().for_each(|group| signal_group(group, Signal::TERM));
        signal_marked(&marks, Signal::TERM);
    }
    let until = Instant::now() + grace;
    while Instant::now() < until && groups().any(|group| test_kill_process_group(group).is_ok()) {
        thread::sleep(LOOK_EVERY);
    }
    groups().for_each(|group| signal_group(group, Signal::KILL));
    kill_marked(&marks);
}

/// A group that is gone has got what we wanted.
pub(super) fn signal_group(group: Pid, signal: Signal) {
    let _ = kill_process_group(group, signal);
}

/// Kills the processes that carry one of `marks`, wherever they went, until there are none. Who is killed starts
/// nothing more, so that this is soon over.
pub(super) fn kill_marked(marks: &[String]) {
    for _ in 0..LOOKS_MAX {
        if signal_marked(marks, Signal::KILL) == Seen::Nothing {
            return;
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// What a look into `/proc` saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Nothing,
    /// A process with a mark, or one that shows nothing: it may just be replaced by another program.
    Something,
}

/// Linux shows the environment that a process began with, and so its mark.
fn signal_marked(marks: &[String], signal: Signal) -> Seen {
    let wanted: Vec<String> = marks.iter().map(|mark| format!("{MARK}={mark}")).collect();
    let mut seen = Seen::Nothing;
    let Ok(entries) = std::fs::read_dir("/proc") else { return seen };
    let processes = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for process in processes.filter_map(Pid::from_raw) {
        let folder = format!("/proc/{}", process.as_raw_nonzero());
        // Another user's process, or one that has just ended, cannot be read and is none of ours.
        let Ok(environment) = std::fs::read(format!("{folder}/environ")) else { continue };
        if environment
            .split(|byte| *byte == 0)
            .any(|entry| wanted.iter().any(|mark| mark.as_bytes() == entry))
        {
            let _ = kill_process(process, signal);
            seen = Seen::Something;
        }
        // Threads of the system and processes that have ended have no program.
        if environment.is_empty() && std::fs::read_link(format!("{folder}/exe")).is_ok() {
            seen = Seen::Something;
        }
    }
    seen
}
