//! The programs in `examples/sql/`, in three languages: each is run twice, with a commit and with a rollback, and exactly
//! what was committed arrives. They need the packages that `cargo xtask examples` installs, and are run by it.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails like the test")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millpond::{Job, Pond, Queue, Raw, Verdict, Worker};
use millpond_testkit::servers::mariadb::Mariadb;
use millpond_testkit::servers::postgres::{Fsync, Postgres};

const MAIL: Queue<Raw> = Queue::new("mail");

/// Ample on a slow machine.
const ARRIVES_WITHIN: Duration = Duration::from_secs(30);

/// The folder with the programs and their packages.
fn folder() -> PathBuf {
    let folder = std::env::var_os("MILLPOND_SQL_EXAMPLES").map(PathBuf::from);
    folder.expect("run `cargo xtask examples`, which installs the packages and names their folder")
}

/// Runs a program of the folder, which ends its transaction in this way.
fn run(url: &str, program: &str, end: &str) {
    let folder = folder();
    let mut command = match program.rsplit_once('.').unwrap().1 {
        "py" => Command::new(folder.join("venv/bin/python")),
        "mjs" => Command::new("node"),
        _ => {
            let mut psql = Command::new("psql");
            psql.args(["--no-psqlrc", "--quiet", "-v", &format!("end={end}"), "-f", program, url]);
            psql
        }
    };
    if command.get_args().next().is_none() {
        command.args([program, end]);
    }
    let ended = command.current_dir(&folder).env("DATABASE_URL", url).output();
    let ended = ended.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(ended.status.success(), "{program} {end}: {}", String::from_utf8_lossy(&ended.stderr));
}

/// Runs each program with both ends, and a worker until what was committed has arrived.
async fn exactly_what_is_committed_arrives(url: &str, programs: &[&'static str]) {
    let pond = Pond::open(url).await.unwrap();
    pond.declare(&MAIL).await.unwrap();
    let (url, all) = (url.to_owned(), programs.to_vec());
    let sent = tokio::task::spawn_blocking(move || {
        for program in all {
            run(&url, program, "rollback");
            run(&url, program, "commit");
        }
    });
    sent.await.unwrap();

    type Seen = Arc<Mutex<Vec<String>>>;
    async fn see(job: Job<Raw>, seen: Seen) -> Verdict {
        assert_eq!((job.key.as_deref(), job.headers()["tenant"].as_str()), (Some("customer:ada"), "acme"));
        let body: serde_json::Value = serde_json::from_slice(&job.body.bytes).unwrap();
        seen.lock().unwrap().push(format!(
            "{} {}",
            body["from"].as_str().unwrap(),
            body["end"].as_str().unwrap()
        ));
        Verdict::Ack
    }
    let seen = Seen::default();
    let done = {
        let pond = pond.clone();
        async move {
            let mut look = tokio::time::interval(Duration::from_millis(50));
            loop {
                look.tick().await;
                let queue = pond.store().queues().await.unwrap().remove(0);
                if queue.done == queue.sent && queue.ready + queue.scheduled + queue.leased == 0 {
                    return;
                }
            }
        }
    };
    let worker = Worker::new(&pond).state(Arc::clone(&seen)).handle(&MAIL, see).run_until(done);
    tokio::time::timeout(ARRIVES_WITHIN, worker).await.unwrap().unwrap();
    pond.close().await;
    let mut expected: Vec<String> = programs.iter().map(|program| format!("{program} commit")).collect();
    let mut arrived = seen.lock().unwrap().clone();
    expected.sort_unstable();
    arrived.sort_unstable();
    assert_eq!(arrived, expected);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by `cargo xtask examples`, which installs the packages"]
async fn programs_with_postgres() {
    let server = tokio::task::block_in_place(|| Postgres::start(Fsync::Off, &[]));
    let programs = ["psql.sql", "postgres.py", "postgres.mjs"];
    exactly_what_is_committed_arrives(server.url(), &programs).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by `cargo xtask examples`, which installs the packages"]
async fn programs_with_mariadb() {
    let server = tokio::task::block_in_place(|| Mariadb::start(Fsync::Off, &[]));
    exactly_what_is_committed_arrives(server.url(), &["mysql.py", "mysql.mjs"]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by `cargo xtask examples`, which installs the packages"]
async fn programs_with_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("shop.db").display());
    exactly_what_is_committed_arrives(&url, &["sqlite.py"]).await;
}
