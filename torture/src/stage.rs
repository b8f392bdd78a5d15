//! A store with its queues, its history and its child processes.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use millpond::sqlite::rusqlite::{Connection, OpenFlags};
use millpond::sqlite::{Options, SqliteStore};
use millpond_core::store::{Admin as _, Inspect as _};
use millpond_core::view::QueueView;
use millpond_testkit::judge::Verdict;
use millpond_testkit::judge::history::{HISTORY_VERSION, Run};

use crate::Outcome;
use crate::child::{Notice, Running};
use crate::chronicle::Chronicle;
use crate::drain;
use crate::work::{QUEUES, kind_plans, queue_plans};
use crate::worker::Setup;

/// The variable that switches a known bug on in a child.
pub(crate) const SABOTAGE: &str = "MILLPOND_SABOTAGE";

/// The business table. It has no unique constraint: an effect that is committed twice is two rows.
const EFFECT_TABLE: &str = "create table torture_effect (message_id blob not null, queue text not null, amount integer not null) strict";

/// The effect of a handler.
pub(crate) const EFFECT_ADD: &str =
    "insert into torture_effect (message_id, queue, amount) values (?1, ?2, ?3)";

/// How long a worker may take to end when it is asked to.
const CLOSE_LIMIT: Duration = Duration::from_secs(15);

/// How often the backlog is counted while it is waited for.
const COUNT_EVERY: Duration = Duration::from_millis(200);

/// The store of one run.
pub(crate) struct Stage {
    dir: PathBuf,
    url: String,
    /// The known bug that is switched on in its children.
    sabotage: Option<&'static str>,
    pub(crate) chronicle: Arc<Chronicle>,
    notices: Receiver<Notice>,
    tell: Sender<Notice>,
}

impl Stage {
    /// Makes the store in an empty directory.
    pub(crate) fn set(
        dir: &Path,
        seed: u64,
        faults: &[&str],
        sabotage: Option<&'static str>,
    ) -> Outcome<Self> {
        std::fs::create_dir_all(dir)?;
        let file = dir.join("torture.db");
        if file.exists() {
            return Err(format!("{} exists: name an empty directory", file.display()).into());
        }
        let url = format!("sqlite://{}", file.display());
        with_store(&url, async |store| {
            for queue in &QUEUES {
                store.declare(queue.name().to_owned(), *queue.settings()).await?;
            }
            Ok(())
        })?;
        Connection::open(&file)?.execute_batch(EFFECT_TABLE)?;
        let run = Run {
            version: HISTORY_VERSION,
            seed,
            commit: commit(),
            store: url.clone(),
            server: server(),
            faults: faults.iter().map(|fault| (*fault).to_owned()).collect(),
            queues: queue_plans(),
            kinds: kind_plans(),
            killing: Vec::new(),
            in_flight_max: 0,
        };
        let chronicle = Arc::new(Chronicle::create(&dir.join("history.jsonl"), &run)?);
        let (tell, notices) = channel();
        Ok(Self { dir: dir.to_owned(), url, sabotage, chronicle, notices, tell })
    }

    pub(crate) fn worker(&self, setup: Setup) -> Outcome<Running> {
        let Setup { slots, dwell_ms } = setup;
        self.start("worker", &["--slots", &slots.to_string(), "--dwell-ms", &dwell_ms.to_string()])
    }

    pub(crate) fn sender(&self) -> Outcome<Running> {
        self.start("sender", &[])
    }

    fn start(&self, role: &'static str, args: &[&str]) -> Outcome<Running> {
        let log = OpenOptions::new().create(true).append(true).open(self.dir.join("children.log"))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args([role, "--url", &self.url]).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).env_remove(SABOTAGE);
        if let Some(name) = self.sabotage {
            command.env(SABOTAGE, name);
        }
        Ok(Running::new(command.spawn()?, role, Arc::clone(&self.chronicle), self.tell.clone()))
    }

    /// The next notice; `None` when there is none in time.
    pub(crate) fn notice(&self, limit: Duration) -> Option<Notice> {
        self.notices.recv_timeout(limit).ok()
    }

    /// A connection that only reads, for SQL of our own.
    pub(crate) fn connection(&self) -> Outcome<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(self.dir.join("torture.db"), flags)?;
        conn.busy_timeout(Duration::from_secs(10))?;
        conn.pragma_update(None, "query_only", true)?;
        Ok(conn)
    }

    /// Writes a checkpoint into the history.
    pub(crate) fn checkpoint(&self, conn: &Connection) -> Outcome<()> {
        self.chronicle.checkpoint(|| Ok(drain::counts(conn)?.events()))
    }

    /// Waits until nothing is left to be worked on; answers whether that was in time. `attend` is given every
    /// notice meanwhile.
    pub(crate) fn drained(
        &self,
        limit: Duration,
        mut attend: impl FnMut(Notice) -> Outcome<()>,
    ) -> Outcome<bool> {
        let (conn, until) = (self.connection()?, Instant::now() + limit);
        while Instant::now() < until {
            if drain::backlog(&conn)? == 0 {
                return Ok(true);
            }
            let count_at = Instant::now() + COUNT_EVERY;
            while let Some(notice) = self.notice(count_at.saturating_duration_since(Instant::now())) {
                attend(notice)?;
            }
        }
        Ok(false)
    }

    /// Ends the children, writes what is in the store at the end, and judges the history.
    pub(crate) fn close(&self, children: impl IntoIterator<Item = Running>) -> Outcome<Ending> {
        let mut ended_well = true;
        for child in children {
            ended_well &= child.close(CLOSE_LIMIT)?;
        }
        let conn = self.connection()?;
        self.chronicle.append(drain::remains(&conn)?);
        let counts = drain::counts(&conn)?;
        self.chronicle.checkpoint(|| Ok(counts.events()))?;
        let mut faults = drain::integrity(&conn)?;
        faults.extend(counts.differences(&self.inspected()?));
        faults.extend(self.complaint()?);
        if !ended_well {
            faults.push("a process did not end well when it was asked to".to_owned());
        }
        let verdict = self.chronicle.judge()?;
        Ok(Ending { verdict, faults, longest_stall: self.chronicle.longest_stall()? })
    }

    /// The first error or panic that a child wrote. What is killed and stopped here gives cause for warnings only.
    fn complaint(&self) -> Outcome<Option<String>> {
        let log = std::fs::read_to_string(self.dir.join("children.log")).unwrap_or_default();
        let is_bad = |line: &&str| line.contains("ERROR") || line.contains("panicked at");
        Ok(log.lines().find(is_bad).map(str::to_owned))
    }

    fn inspected(&self) -> Outcome<Vec<QueueView>> {
        with_store(&self.url, async |store| store.queues().await)
    }
}

/// What came out of a run.
pub(crate) struct Ending {
    pub(crate) verdict: Verdict,
    /// What is wrong beside the history: a damaged file, a wrong count.
    pub(crate) faults: Vec<String>,
    /// The longest wait from a death to the takeover of what it left.
    pub(crate) longest_stall: Option<Duration>,
}

impl Ending {
    pub(crate) fn good(&self) -> bool {
        self.verdict.held() && self.faults.is_empty()
    }
}

/// Opens the store in this process for one use of it.
fn with_store<T>(url: &str, use_it: impl AsyncFnOnce(&SqliteStore) -> millpond::Result<T>) -> Outcome<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = SqliteStore::open(url, Options::default())?;
        let used = use_it(&store).await;
        store.close().await;
        Ok(used?)
    })
}

/// The version of the database.
pub(crate) fn server() -> String {
    format!("sqlite {}", millpond::sqlite::rusqlite::version())
}

/// What was run, if it is run in its repository.
pub(crate) fn commit() -> String {
    let output = Command::new("git").args(["rev-parse", "--short", "HEAD"]).stderr(Stdio::null()).output();
    let text = output.ok().filter(|output| output.status.success());
    let text = text.and_then(|output| String::from_utf8(output.stdout).ok());
    text.map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}
