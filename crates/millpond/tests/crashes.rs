//! The rows of the crash matrix (`docs/crash-matrix.md`) that need a death: each is played by a process of its own, which
//! stops at one place and is killed there, or on a server that is killed. The number in a name is that of the row.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails like the test")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use millpond::mysql::MysqlUnit;
use millpond::mysql::mysql_async::prelude::Queryable;
use millpond::postgres::PostgresUnit;
use millpond::sqlite::SqliteUnit;
use millpond::view::QueueView;
use millpond::{
    Buffer, Code, FastQueue, ItemOptions, Job, Pond, Queue, Stored, TxQueue, UnitOfWork, Verdict, Worker,
};
use millpond_testkit::bench::Running;
use millpond_testkit::faults::Fault;
use millpond_testkit::gate::Gate;
use millpond_testkit::proxy::{Cut, Proxy, Way};
use millpond_testkit::servers::mariadb::{Mariadb, fresh_prefix};
use millpond_testkit::servers::postgres::{Fsync, Postgres, fresh_schema};
use millpond_testkit::wire::Wire;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::timeout;

const MAIL: Queue<u32> = Queue::new("mail");
const REPORTS: TxQueue<u32> = TxQueue::new("reports");
const PINGS: FastQueue<u32> = FastQueue::new("pings");
const GATHERED: Queue<u32> = Queue::new("gathered").buffered(Buffer::DEFAULT);

/// Tell a process of this test what to play, and where.
const POINT: &str = "MILLPOND_CRASH_POINT";
const STORE: &str = "MILLPOND_CRASH_STORE";

/// What it says when it is where it is to be killed.
const HERE: &str = "here";

/// An effect of the program's own.
const ADD: &str = "insert into effect (number) values (1)";

/// Ample on a slow machine.
const WITHIN: Duration = Duration::from_secs(30);

/// A place for a store.
struct Place {
    url: String,
    _folder: Option<tempfile::TempDir>,
}

impl Place {
    fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { url: format!("sqlite://{}", folder.path().join("crash.db").display()), _folder: Some(folder) }
    }

    fn postgres() -> Self {
        Self { url: with(Postgres::shared().url(), "schema", &fresh_schema()), _folder: None }
    }

    fn mariadb() -> Self {
        Self { url: with(Mariadb::shared().url(), "prefix", &fresh_prefix()), _folder: None }
    }
}

fn with(url: &str, name: &str, value: &str) -> String {
    let and = if url.contains('?') { '&' } else { '?' };
    format!("{url}{and}{name}={value}")
}

/// Each of these tests on every store.
macro_rules! on_every_store {
    ($($test:ident)*) => {
        on_every_store! { @ sqlite $($test)* }
        on_every_store! { @ postgres $($test)* }
        on_every_store! { @ mariadb $($test)* }
    };
    (@ $store:ident $($test:ident)*) => {
        mod $store {
            $(#[test]
            fn $test() {
                super::$test(&super::Place::$store());
            })*
        }
    };
}

on_every_store! {
    crash_01_a_process_that_dies_before_the_commit_leaves_nothing
    crash_02_a_process_that_dies_after_the_commit_has_sent
    crash_08_a_process_that_dies_before_the_answer_has_sent_or_not
    crash_09_a_process_that_dies_within_the_window_has_lost_it
    crash_12_a_process_that_dies_in_its_last_flush_has_lost_what_was_not_written
    crash_14_a_process_that_dies_after_the_answer_has_lost_nothing
}

/// A process that stops at `point`, and is killed there.
fn killed_at(place: &Place, point: &str) {
    let mut child = begun_at(place, point);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A process that has come to `point`.
fn begun_at(place: &Place, point: &str) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "the_process_that_dies", "--nocapture"]).env(POINT, point).env(STORE, &place.url);
    let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    let here = said.lines().map_while(Result::ok).any(|line| line == HERE);
    assert!(here, "it has ended before it was at {point}: {:?}", child.wait());
    child
}

/// Not a test: what [`killed_at`] starts.
#[test]
fn the_process_that_dies() {
    let (Ok(point), Ok(url)) = (std::env::var(POINT), std::env::var(STORE)) else { return };
    Runtime::new().unwrap().block_on(async {
        let opened = Pond::open(&url).await.unwrap();
        let wire = Arc::new(Wire::to(Arc::clone(opened.store())));
        let program = Program::on(Pond::with_store(Arc::clone(&wire) as _), &url);
        let pond = program.pond.clone();
        let gate = Arc::new(Gate::default());
        let hold = |verb: &str| wire.faults().order(verb, Fault::Held(Arc::clone(&gate)), usize::MAX);
        match point.as_str() {
            "write" | "commit" => {
                hold(&point);
                let unit = program.paid().await;
                tokio::spawn(unit.commit());
                gate.arrival().await;
            }
            "committed" => {
                hold("relay");
                program.paid().await.commit().await.unwrap();
                gate.arrival().await;
            }
            "asked" => {
                hold("append");
                tokio::spawn(async move { pond.send(&MAIL, [1.dedup_key("one")]).await.map(drop) });
                gate.arrival().await;
            }
            "stored" => {
                wire.faults().order("append", Fault::LostAnswer, 1);
                let error = pond.send(&MAIL, [1.dedup_key("one")]).await.unwrap_err();
                assert_eq!(error.code(), Code::UnknownOutcome);
            }
            "window" => {
                hold("append");
                let sent = pond.send(&GATHERED, [1, 2]).await.unwrap();
                assert_eq!(sent.messages[0].stored, Stored::Buffered);
            }
            "last flush" => {
                pond.send(&GATHERED, [1]).await.unwrap();
                pond.flush().await;
                pond.send(&GATHERED, [2]).await.unwrap();
                hold("append");
                tokio::spawn(pond.close());
                gate.arrival().await;
            }
            "answered" => {
                let now = pond.send(&MAIL, 0..50).await.unwrap();
                assert_eq!(now.messages.len(), 50);
                pond.send(&MAIL, [50.delay(Duration::from_millis(1))]).await.unwrap();
            }
            other => panic!("there is no point `{other}`"),
        }
        println!("\n{HERE}");
        std::future::pending::<()>().await;
    });
}

/// A program with a table of its own in the database of its store.
struct Program {
    pond: Pond,
    /// Tests share a server.
    table: String,
}

impl Program {
    /// With its queues and its table.
    async fn first(url: &str) -> Self {
        let pond = Pond::open(url).await.unwrap();
        pond.declare(&MAIL).await.unwrap();
        pond.declare(&REPORTS).await.unwrap();
        pond.declare(&PINGS).await.unwrap();
        pond.declare(&GATHERED).await.unwrap();
        let program = Self::on(pond, url);
        let mut unit = program.pond.begin().await.unwrap();
        program.run(&mut unit, "create table effect (number integer not null)").await.unwrap();
        // On MariaDB the table is committed by itself, and with it the transaction.
        let ended = unit.commit().await;
        assert!(ended.is_ok() || url.starts_with("mysql"), "{ended:?}");
        program
    }

    fn on(pond: Pond, url: &str) -> Self {
        let place = |name: &str| url.split_once(name).map(|(_, place)| place);
        let table = match (place("schema="), place("prefix=")) {
            (Some(schema), _) => format!("{schema}.effect"),
            (_, Some(prefix)) => format!("effect_of_{prefix}"),
            _ => "effect".to_owned(),
        };
        Self { pond, table }
    }

    /// A unit of work with an effect of the program's own, and messages of each mode.
    async fn paid(&self) -> UnitOfWork {
        let mut unit = self.pond.begin().await.unwrap();
        self.run(&mut unit, ADD).await.unwrap();
        unit.send(&REPORTS, [1]).await.unwrap();
        unit.send(&MAIL, [1_002]).await.unwrap();
        unit.send(&PINGS, [3]).await.unwrap();
        unit
    }

    /// Runs a statement of the program's own.
    async fn run(&self, unit: &mut UnitOfWork, statement: &str) -> Result<(), Box<dyn std::error::Error>> {
        let text = statement.replace("effect", &self.table);
        match self.pond.store().capabilities().store {
            "sqlite" => unit.sqlite(move |db| db.execute_batch(&text)).await?,
            "postgres" => unit.postgres().await?.batch_execute(&text).await?,
            _ => unit.mysql().await?.query_drop(text).await?,
        }
        Ok(())
    }

    /// How many effects there are.
    async fn effects(&self) -> i64 {
        let mut unit = self.pond.begin().await.unwrap();
        let text = format!("select count(*) from {}", self.table);
        match self.pond.store().capabilities().store {
            "sqlite" => unit.sqlite(move |db| db.query_row(&text, [], |row| row.get(0))).await.unwrap(),
            "postgres" => unit.postgres().await.unwrap().query_one(&text, &[]).await.unwrap().get(0),
            _ => unit.mysql().await.unwrap().query_first(text).await.unwrap().unwrap(),
        }
    }

    /// How many messages of a queue were ever stored.
    async fn sent(&self, queue: &str) -> u64 {
        let queues: Vec<QueueView> = self.pond.store().queues().await.unwrap();
        queues.into_iter().find(|view| view.name == queue).unwrap().sent
    }

    /// What a worker gets of all queues: so many messages, and no other.
    async fn delivered(&self, messages: usize) -> BTreeSet<(String, u32)> {
        let (tell, mut told) = mpsc::unbounded_channel();
        let handler = move |job: Job<u32>| {
            tell.send((job.queue.to_string(), job.body)).unwrap();
            async { Verdict::Ack }
        };
        let worker = Worker::new(&self.pond).handle(&MAIL, handler.clone()).handle(&REPORTS, handler.clone());
        let worker = worker.handle(&PINGS, handler.clone()).handle(&GATHERED, handler);
        let running = Running::start(worker);
        let mut delivered = BTreeSet::new();
        for _ in 0..messages {
            let next = timeout(WITHIN, told.recv()).await.unwrap_or_else(|_| panic!("only {delivered:?}"));
            assert!(delivered.insert(next.unwrap()), "each once");
        }
        running.stop().await;
        assert!(told.try_recv().is_err(), "nothing else");
        let mut sent = 0;
        for queue in ["mail", "reports", "pings", "gathered"] {
            sent += self.sent(queue).await;
        }
        assert_eq!(sent, messages as u64, "and nothing is left");
        delivered
    }
}

/// Plays what another process finds after one was killed at `point`.
fn after_death_at<T>(place: &Place, point: &str, look: impl AsyncFnOnce(Program) -> T) -> T {
    Runtime::new().unwrap().block_on(async {
        let program = Program::first(&place.url).await;
        killed_at(place, point);
        look(program).await
    })
}

fn mail(bodies: impl IntoIterator<Item = u32>) -> BTreeSet<(String, u32)> {
    bodies.into_iter().map(|body| ("mail".to_owned(), body)).collect()
}

/// Before anything is written, and when only the commit is missing.
fn crash_01_a_process_that_dies_before_the_commit_leaves_nothing(place: &Place) {
    Runtime::new().unwrap().block_on(async {
        let program = Program::first(&place.url).await;
        for point in ["write", "commit"] {
            killed_at(place, point);
            assert_eq!(program.effects().await, 0, "{point}");
        }
        // And nothing that it held is held any more.
        program.pond.send(&MAIL, [7]).await.unwrap();
        assert_eq!(program.delivered(1).await, mail([7]));
    });
}

/// What is a part of the transaction is delivered by another process; what only was in memory is lost, by contract.
fn crash_02_a_process_that_dies_after_the_commit_has_sent(place: &Place) {
    after_death_at(place, "committed", async |program| {
        assert_eq!(program.effects().await, 1);
        let pings = program.sent("pings").await;
        let delivered = program.delivered(2 + pings as usize).await;
        let expected = [("reports".to_owned(), 1), ("mail".to_owned(), 1_002)].into();
        assert!(delivered.is_superset(&expected), "{delivered:?}");
    });
}

/// A repeat with the same dedup key makes one message, whatever became of the first.
fn crash_08_a_process_that_dies_before_the_answer_has_sent_or_not(place: &Place) {
    Runtime::new().unwrap().block_on(async {
        let program = Program::first(&place.url).await;
        killed_at(place, "asked");
        assert_eq!(program.sent("mail").await, 0);
        killed_at(place, "stored");
        assert_eq!(program.sent("mail").await, 1);
        let again = program.pond.send(&MAIL, [1.dedup_key("one")]).await.unwrap();
        assert!(matches!(again.messages[0].stored, Stored::Duplicate { .. }), "{again:?}");
        assert_eq!(program.delivered(1).await, mail([1]));
    });
}

/// The contract of a buffer.
fn crash_09_a_process_that_dies_within_the_window_has_lost_it(place: &Place) {
    after_death_at(place, "window", async |program| {
        assert_eq!(program.sent("gathered").await, 0);
        program.pond.send(&GATHERED, [3]).await.unwrap();
        program.pond.flush().await;
        assert_eq!(program.delivered(1).await, [("gathered".to_owned(), 3)].into());
    });
}

/// What was flushed before is there.
fn crash_12_a_process_that_dies_in_its_last_flush_has_lost_what_was_not_written(place: &Place) {
    after_death_at(place, "last flush", async |program| {
        assert_eq!(program.delivered(1).await, [("gathered".to_owned(), 1)].into());
    });
}

/// Due now or later.
fn crash_14_a_process_that_dies_after_the_answer_has_lost_nothing(place: &Place) {
    after_death_at(place, "answered", async |program| {
        assert_eq!(program.delivered(51).await, mail(0..51));
    });
}

/// A server that is killed with all that it has in memory, right after a send has returned.
async fn survives_its_server(url: &str, kill: impl FnOnce()) {
    let program = Program::first(url).await;
    program.pond.send(&MAIL, 0..50).await.unwrap();
    program.pond.send(&MAIL, [50.delay(Duration::from_millis(1))]).await.unwrap();
    program.paid().await.commit().await.unwrap();
    tokio::task::block_in_place(kill);
    let opened = Program::on(Pond::open(url).await.unwrap(), url);
    assert_eq!(opened.effects().await, 1);
    let delivered = opened.delivered(54).await;
    assert!(delivered.is_superset(&mail(0..51)), "{delivered:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn crash_14_a_postgres_that_is_killed_has_what_a_send_has_answered() {
    let server = tokio::task::block_in_place(|| Postgres::start(Fsync::On, &[]));
    let kill = || {
        server.kill_tree();
        server.start_again();
    };
    survives_its_server(&with(server.url(), "schema", "killed"), kill).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crash_14_a_mariadb_that_is_killed_has_what_a_send_has_answered() {
    let server = tokio::task::block_in_place(|| Mariadb::start(Fsync::On, &[]));
    let kill = || {
        server.crash();
        server.start_again();
    };
    survives_its_server(&with(server.url(), "prefix", "killed_"), kill).await;
}

/// Commits whose connection is cut in the middle of the answer, after so many bytes of it: what the commit says is true,
/// and where it does not know, the rows do. What was to be sent afterwards is not sent, and counted.
async fn is_decided_by_its_rows(url: &str, port: u16) {
    let proxy = Proxy::start(port).unwrap();
    let program = Program::first(url).await;
    let through = url.replace(&format!(":{port}/"), &format!(":{}/", proxy.port()));
    let cut_off = Program::on(Pond::open(&through).await.unwrap(), &through);
    let (mut unknown, mut reported, mut announced) = (0, 0, 0);
    // The first ones fall into the answer of the commit, or of what is asked right before; the others into those of the
    // statements that write a message.
    for after in (0..40).step_by(4).chain((40..640).step_by(24)) {
        // What is left of a cut may come later, and then there is nothing to be committed.
        let Ok(mut unit) = cut_off.pond.begin().await else { continue };
        if cut_off.run(&mut unit, ADD).await.is_err() || unit.send(&PINGS, [after]).await.is_err() {
            continue;
        }
        let report = match 40 <= after {
            true => unit.send(&REPORTS, [after]).await.ok(),
            false => None,
        };
        let before = program.effects().await;
        proxy.arm(Cut { way: Way::ToClient, after: after.into() });
        let said = unit.commit().await.map(drop).map_err(|error| error.code());
        proxy.disarm();
        let is_there = program.effects().await - before == 1;
        if let Some(id) = report.iter().flat_map(|sent| sent.ids()).next() {
            let found = program.pond.find(id).await.unwrap();
            assert_eq!(found.is_some(), is_there, "{after}: {said:?}");
            reported += u64::from(is_there);
        }
        match said {
            Ok(()) => announced += 1,
            Err(Code::UnknownOutcome) => unknown += 1,
            Err(_) => {}
        }
        let may_be = [said.is_ok(), said == Err(Code::UnknownOutcome) && is_there];
        assert_eq!(is_there, may_be.contains(&true), "{after}: {said:?}");
    }
    assert!(0 < unknown, "no cut came with the commit");
    let counts = cut_off.pond.counts();
    assert_eq!(counts.of(millpond::Counter::CommitUnknown, "pings"), unknown);
    assert_eq!(counts.total(millpond::Counter::CommitOutcomeUnknown), unknown);
    assert_eq!(program.sent("reports").await, reported);
    let failed = counts.of(millpond::Counter::AfterCommitFailed, "pings");
    let pings = program.sent("pings").await;
    assert!(announced - failed <= pings && pings <= announced, "{pings} of {announced}, {failed} failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn crash_13_a_commit_to_a_postgres_that_is_cut_off_is_decided_by_its_rows() {
    let server = tokio::task::block_in_place(|| Postgres::start(Fsync::Off, &[]));
    is_decided_by_its_rows(&with(server.url(), "schema", "cut"), server.port()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crash_13_a_commit_to_a_mariadb_that_is_cut_off_is_decided_by_its_rows() {
    let server = tokio::task::block_in_place(|| Mariadb::start(Fsync::Off, &[]));
    is_decided_by_its_rows(&with(server.url(), "prefix", "cut_"), server.port()).await;
}
