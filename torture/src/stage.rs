//! A store with its queues, its history and its child processes.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use millpond::Store;
use millpond_core::view::QueueView;
use millpond_testkit::judge::Verdict;
use millpond_testkit::judge::history::{HISTORY_VERSION, Run};
use millpond_testkit::proxy::Proxy;

use crate::Outcome;
use crate::child::{Notice, Running};
use crate::chronicle::Chronicle;
use crate::database::open;
use crate::drain;
use crate::reader::Reader;
use crate::server::{CONNECTIONS, Server};
use crate::transactions::Share;
use crate::work::{QUEUES, kind_plans, queue_plans};
use crate::worker::Setup;

/// The variable that switches a known bug on in a child.
pub(crate) const SABOTAGE: &str = "MILLPOND_SABOTAGE";

/// How long a worker may take to end when it is asked to.
const CLOSE_LIMIT: Duration = Duration::from_secs(15);

/// What is said of a connection whose transaction nobody ends.
pub(crate) const LEFT: &str = "left in a transaction";

/// How often it is looked whether a connection is left in a transaction, before it counts.
const LEFT_LOOKS: usize = 8;
const LEFT_LOOK_EVERY: Duration = Duration::from_millis(500);

/// How often the backlog is counted while it is waited for.
const COUNT_EVERY: Duration = Duration::from_millis(200);

/// Workers say much more than senders, and would take every cut.
pub(crate) struct Proxies {
    pub(crate) senders: Proxy,
    pub(crate) workers: Proxy,
}

impl Proxies {
    fn of(&self, role: &str) -> &Proxy {
        if role == "worker" { &self.workers } else { &self.senders }
    }

    fn made(&self) -> u64 {
        self.senders.made() + self.workers.made()
    }

    pub(crate) fn disarm(&self) {
        self.senders.disarm();
        self.workers.disarm();
    }
}

/// The store of one run.
pub(crate) struct Stage {
    dir: PathBuf,
    pub(crate) server: Arc<Server>,
    url: String,
    /// What children that are started from now on are told of the connections they may have.
    connections: usize,
    /// Before the server, where connections of children are to be cut.
    pub(crate) proxies: Option<Proxies>,
    /// The known bug that is switched on in its children.
    sabotage: Option<&'static str>,
    pub(crate) chronicle: Arc<Chronicle>,
    notices: Receiver<Notice>,
    tell: Sender<Notice>,
}

impl Stage {
    /// Makes the store, and its history in an empty directory.
    pub(crate) fn set(
        server: &Arc<Server>,
        dir: &Path,
        seed: u64,
        faults: &[&str],
        sabotage: Option<&'static str>,
    ) -> Outcome<Self> {
        std::fs::create_dir_all(dir)?;
        let history = dir.join("history.jsonl");
        if history.exists() {
            return Err(format!("{} exists: name an empty directory", history.display()).into());
        }
        let url = server.fresh_url(dir)?;
        with_store(&url, async |store: &dyn Store| {
            for queue in &QUEUES {
                store.declare(queue.name().to_owned(), *queue.settings()).await?;
            }
            Ok(())
        })?;
        Reader::open(&url)?.step(server.database().effect_table())?;
        let run = Run {
            version: HISTORY_VERSION,
            seed,
            commit: commit(),
            store: url.clone(),
            server: server.version(),
            faults: faults.iter().map(|fault| (*fault).to_owned()).collect(),
            queues: queue_plans(),
            kinds: kind_plans(),
            killing: Vec::new(),
            in_flight_max: 0,
        };
        let chronicle = Arc::new(Chronicle::create(&history, &run, server.forgets_leases())?);
        let (tell, notices) = channel();
        let (dir, server) = (dir.to_owned(), Arc::clone(server));
        Ok(Self {
            dir,
            server,
            url,
            connections: CONNECTIONS,
            proxies: None,
            sabotage,
            chronicle,
            notices,
            tell,
        })
    }

    /// Children that are started from now on connect through a proxy.
    pub(crate) fn put_proxies(&mut self) -> Outcome<()> {
        let (senders, workers) = (self.server.proxy()?, self.server.proxy()?);
        self.proxies = Some(Proxies { senders, workers });
        Ok(())
    }

    /// Children that are started from now on keep so many connections at most, beside those of their own threads.
    pub(crate) fn limit_connections(&mut self, connections: usize) {
        self.connections = connections;
    }

    pub(crate) fn worker(&self, setup: Setup) -> Outcome<Running> {
        let Setup { slots, dwell_ms, hold_ms } = setup;
        let [slots, dwell, hold] = [slots as u64, dwell_ms, hold_ms].map(|number| number.to_string());
        self.start("worker", &["--slots", &slots, "--dwell-ms", &dwell, "--hold-ms", &hold])
    }

    pub(crate) fn sender(&self) -> Outcome<Running> {
        self.start("sender", &[])
    }

    /// A process that makes calls and gives up many of them.
    pub(crate) fn dropper(&self, calls: u64, seed: u64) -> Outcome<Running> {
        self.start("dropper", &["--calls", &calls.to_string(), "--seed", &seed.to_string()])
    }

    /// A process that carries out a share of the business transactions.
    pub(crate) fn clerk(&self, share: Share) -> Outcome<Running> {
        let Share { first, step, end, seed } = share;
        let [first, step, end, seed] = [first, step, end, seed].map(|number| number.to_string());
        self.start("clerk", &["--first", &first, "--step", &step, "--end", &end, "--seed", &seed])
    }

    /// A process that is given the messages of business transactions.
    pub(crate) fn recipient(&self) -> Outcome<Running> {
        self.start("recipient", &[])
    }

    fn start(&self, role: &'static str, args: &[&str]) -> Outcome<Running> {
        let log = OpenOptions::new().create(true).append(true).open(self.dir.join("children.log"))?;
        let mut command = Command::new(std::env::current_exe()?);
        let proxy = self.proxies.as_ref().map(|proxies| proxies.of(role));
        let url = self.server.through(&self.url, proxy);
        let url = url.replacen(&allowed(CONNECTIONS), &allowed(self.connections), 1);
        command.args([role, "--url", &url]).args(args);
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

    /// A connection for SQL of our own.
    pub(crate) fn reader(&self) -> Outcome<Reader> {
        Reader::open(&self.url)
    }

    /// Writes a checkpoint into the history.
    pub(crate) fn checkpoint(&self, reader: &Reader) -> Outcome<()> {
        self.chronicle.checkpoint(|| Ok(drain::counts(reader)?.events()))
    }

    /// kill -9 of the server with all its processes. It is started again `after` a while.
    pub(crate) fn kill_server(&self, after: Duration) {
        self.chronicle.server_dies(|| self.server.kill());
        std::thread::sleep(after);
        self.server.start_again();
    }

    /// Waits until nothing is left to be worked on; answers whether that was in time. `attend` is given every
    /// notice meanwhile.
    pub(crate) fn drained(
        &self,
        limit: Duration,
        mut attend: impl FnMut(Notice) -> Outcome<()>,
    ) -> Outcome<bool> {
        let (reader, until) = (self.reader()?, Instant::now() + limit);
        while Instant::now() < until {
            if drain::backlog(&reader)? == 0 {
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
        let reader = self.reader()?;
        let left_in_transaction = self.left_in_transaction(&reader)?;
        let mut faults = self.end(children)?;
        self.chronicle.append(drain::remains(&reader)?);
        self.chronicle.checkpoint(|| Ok(drain::counts(&reader)?.events()))?;
        if left_in_transaction != 0 {
            faults.push(format!("{left_in_transaction} connections are {LEFT}"));
        }
        let verdict = self.chronicle.judge()?;
        let longest_stall = self.chronicle.longest_stall()?;
        let cuts = self.proxies.as_ref().map_or(0, Proxies::made);
        let server_kills = self.chronicle.server_kills();
        Ok(Ending {
            verdict,
            faults,
            longest_stall,
            left_in_transaction,
            cuts,
            server_kills,
            drops: 0,
            starved: 0,
        })
    }

    /// Ends the children; answers what is wrong with them and with the store, without the history.
    pub(crate) fn end(&self, children: impl IntoIterator<Item = Running>) -> Outcome<Vec<String>> {
        let mut ended_well = true;
        for child in children {
            ended_well &= child.close(CLOSE_LIMIT)?;
        }
        let reader = self.reader()?;
        let mut faults = drain::integrity(&reader)?;
        faults.extend(drain::counts(&reader)?.differences(&self.inspected()?));
        faults.extend(self.complaint()?);
        if !ended_well {
            faults.push("a process did not end well when it was asked to".to_owned());
        }
        Ok(faults)
    }

    /// Looked at for a while, while the children are there still: one that is about to end is not left.
    fn left_in_transaction(&self, reader: &Reader) -> Outcome<u64> {
        let mut left = 0;
        for _ in 0..LEFT_LOOKS {
            left = Server::left_in_transaction(reader)?;
            if left == 0 {
                break;
            }
            std::thread::sleep(LEFT_LOOK_EVERY);
        }
        Ok(left)
    }

    /// The first error or panic that a child wrote. What is killed and stopped here gives cause for warnings only.
    fn complaint(&self) -> Outcome<Option<String>> {
        let log = std::fs::read_to_string(self.dir.join("children.log")).unwrap_or_default();
        let is_bad = |line: &&str| line.contains("ERROR") || line.contains("panicked at");
        Ok(log.lines().find(is_bad).map(str::to_owned))
    }

    fn inspected(&self) -> Outcome<Vec<QueueView>> {
        with_store(&self.url, async |store: &dyn Store| store.queues().await)
    }
}

/// What came out of a run.
pub(crate) struct Ending {
    pub(crate) verdict: Verdict,
    /// What is wrong beside the history: a damaged file, a wrong count.
    pub(crate) faults: Vec<String>,
    /// The longest wait from a death to the takeover of what it left.
    pub(crate) longest_stall: Option<Duration>,
    pub(crate) left_in_transaction: u64,
    pub(crate) server_kills: u64,
    /// Connections that were cut.
    pub(crate) cuts: u64,
    /// Calls that were given up before their answer.
    pub(crate) drops: u64,
    /// Calls that found no connection.
    pub(crate) starved: u64,
}

impl Ending {
    pub(crate) fn good(&self) -> bool {
        self.verdict.held() && self.faults.is_empty()
    }
}

/// The parameter of a URL.
fn allowed(connections: usize) -> String {
    format!("connections={connections}")
}

/// Opens the store in this process for one use of it.
fn with_store<T>(url: &str, use_it: impl AsyncFnOnce(&dyn Store) -> millpond::Result<T>) -> Outcome<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = open(url).await?;
        let used = use_it(&*store).await;
        store.close().await;
        Ok(used?)
    })
}

/// What was run, if it is run in its repository.
pub(crate) fn commit() -> String {
    let output = Command::new("git").args(["rev-parse", "--short", "HEAD"]).stderr(Stdio::null()).output();
    let text = output.ok().filter(|output| output.status.success());
    let text = text.and_then(|output| String::from_utf8(output.stdout).ok());
    text.map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}
