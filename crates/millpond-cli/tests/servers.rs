//! `millpond work` and `millpond health` on a server that goes away and comes back.

#![allow(clippy::unwrap_used, reason = "what fails in a test fails it")]

mod common;

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::{Place, stderr};
use millpond_testkit::servers::mariadb::Mariadb;
use millpond_testkit::servers::postgres::{Fsync, Postgres};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// How long a worker may take to be itself again once its server is back.
const BACK_WITHIN: Duration = Duration::from_secs(10);

/// How long it may take to begin.
const BEGINS_WITHIN: Duration = Duration::from_secs(30);

/// How long a probe may take that finds nobody.
const PROBED_WITHIN: Duration = Duration::from_secs(5);

/// How long the server is away: every loop of the worker has waited its longest by then.
const AWAY: Duration = Duration::from_secs(8);

/// A worker that runs; a test that fails leaves none behind.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until so many messages of the queue are done; answers how long that took.
#[track_caller]
fn done(place: &Place, store: &str, messages: u64, limit: Duration) -> Duration {
    let began = Instant::now();
    loop {
        let shown = place.json(&format!("queue show mail {store}"));
        if shown["done"] == messages {
            return began.elapsed();
        }
        assert!(began.elapsed() < limit, "{shown}");
    }
}

fn outlives(url: &str, stop: impl FnOnce(), start: impl FnOnce()) {
    let place = Place::empty();
    let store = format!("--store {url}");
    place.ok(&format!("queue add mail {store}"));
    let mut command = place.command(&format!("work mail --exec true {store}"));
    let mut worker = Worker(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    place.ok(&format!("queue send mail 1 {store}"));
    done(&place, &store, 1, BEGINS_WITHIN);

    stop();
    let away = Instant::now();
    while away.elapsed() < AWAY {
        let asked = Instant::now();
        let output = place.run(&format!("health {store} --json"));
        assert!(asked.elapsed() < PROBED_WITHIN, "{:?}", asked.elapsed());
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(said["status"], "not ready");
    }
    start();
    assert!(worker.0.try_wait().unwrap().is_none(), "it stays");
    let back = Instant::now();
    place.ok(&format!("health {store}"));
    place.ok(&format!("queue send mail 2 {store}"));
    done(&place, &store, 2, BACK_WITHIN);
    assert!(back.elapsed() < BACK_WITHIN, "{:?}", back.elapsed());

    let pid = Pid::from_raw(i32::try_from(worker.0.id()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert!(worker.0.wait().unwrap().success(), "it ends as if nothing had been");
}

#[test]
fn a_worker_outlives_its_postgres() {
    let server = Postgres::start(Fsync::On, &[]);
    outlives(server.url(), || server.crash(), || server.start_again());
}

#[test]
fn a_worker_outlives_its_mariadb() {
    let server = Mariadb::start(Fsync::On, &[]);
    outlives(server.url(), || server.crash(), || server.start_again());
}
