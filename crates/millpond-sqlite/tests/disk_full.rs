//! A disk that fills: sends are refused with a typed error, everything else goes on, and nothing acknowledged is
//! lost.
//!
//! The disk is a small tmpfs, which only root may mount; elsewhere this test says so and checks nothing.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails like the test")]

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use millpond_core::error::Code;
use millpond_core::message::{MessageId, NewMessage, Token};
use millpond_core::pick::Lane;
use millpond_core::queue::QueueSettings;
use millpond_core::settle::Settlement;
use millpond_core::store::{
    Admin, Claim, Inspect, Lease, LeaseRequest, Log, Queue, Renewal, SettleClaim, SettleItem, Settled,
};
use millpond_sqlite::{Options, SqliteStore};

const DISK: &str = "size=96m";
const BALLAST_BYTES: usize = 40 * 1024 * 1024;
const BODY_BYTES: usize = 50_000;

/// A file system of its own, unmounted when dropped.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: &Path) -> Option<Self> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", DISK, "tmpfs"]).arg(at).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| Self(at.to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn message(number: u128) -> NewMessage {
    NewMessage {
        id: MessageId(uuid::Uuid::from_u128(number)),
        kind: None,
        key: None,
        headers: Default::default(),
        content_type: None,
        body: vec![b'x'; BODY_BYTES],
        priority: 2,
        due: None,
        attempts_max: None,
        retry_until: None,
        dedup: None,
    }
}

/// Sends until the store refuses; answers the ids that were acknowledged, and the refusal.
async fn fill(store: &SqliteStore, queue: &Queue) -> (HashSet<MessageId>, Code) {
    let mut acknowledged = HashSet::new();
    for number in 0_u128.. {
        let batch: Vec<_> = (0..4).map(|place| message(number * 4 + place)).collect();
        let ids: Vec<_> = batch.iter().map(|message| message.id).collect();
        match store.append(queue.id, batch).await {
            Ok(_) => acknowledged.extend(ids),
            Err(error) => return (acknowledged, error.code()),
        }
    }
    unreachable!("the disk is not endless")
}

async fn lease(store: &SqliteStore, queue: &Queue, token: u8) -> Option<Claim> {
    let request = LeaseRequest {
        queue: queue.id,
        worker: "worker".to_owned(),
        token: Token([token; 16]),
        turns: vec![(2, Lane::Main)],
        messages_max: 16,
        bytes_max: usize::MAX,
        hands_empty: true,
        one_by_one: true,
    };
    match store.lease(request).await.unwrap() {
        Lease::Claim(claim) => Some(claim),
        _ => None,
    }
}

async fn ack(store: &SqliteStore, claim: &Claim) -> Vec<Settled> {
    let items = claim.messages.iter().map(|message| SettleItem {
        offset: message.offset,
        kind: None,
        settlement: Settlement::Done,
        error: None,
        class: None,
        run: Duration::ZERO,
    });
    let items = items.collect();
    store.settle(vec![SettleClaim { held: claim.held, items }]).await.unwrap()
}

#[tokio::test]
async fn a_full_disk_refuses_sends_and_everything_else_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_disk) = Disk::mount(folder.path()) else {
        eprintln!("not checked: this test mounts a small file system, and that needs root");
        return;
    };
    let ballast = folder.path().join("ballast");
    std::fs::write(&ballast, vec![1; BALLAST_BYTES]).unwrap();
    let url = format!("sqlite://{}", folder.path().join("a.db").display());
    let store = SqliteStore::open(&url, Options::default()).unwrap();
    let settings = QueueSettings { message_limit: None, ..QueueSettings::DEFAULT };
    let queue = store.declare("mail".to_owned(), settings).await.unwrap();

    let (acknowledged, code) = fill(&store, &queue).await;
    assert_eq!(code, Code::StorageFull);
    assert!(acknowledged.len() > 100, "{}", acknowledged.len());

    let renewal = Renewal {
        worker: "worker".to_owned(),
        host: "host".to_owned(),
        lease: Duration::from_secs(30),
        queues: vec!["mail".to_owned()],
        slots: 1,
        busy: 0,
        error: None,
        facts: millpond_core::view::WorkerFacts::default(),
    };
    store.renew(renewal).await.expect("a worker can start while the disk is full");
    let mut seen = HashSet::new();
    for token in 0..=u8::MAX {
        let Some(claim) = lease(&store, &queue, token).await else { break };
        seen.extend(claim.messages.iter().map(|message| message.id));
        assert!(matches!(ack(&store, &claim).await[..], [Settled::Applied { .. }]));
    }
    assert_eq!(seen, acknowledged, "what was acknowledged is delivered, and nothing else");
    let view = store.queues().await.unwrap().remove(0);
    assert_eq!((view.ready, view.leased, view.done), (0, 0, acknowledged.len() as u64));
    assert_eq!(store.append(queue.id, vec![message(1 << 100)]).await.unwrap_err().code(), Code::StorageFull);

    std::fs::remove_file(&ballast).unwrap();
    let freed = Instant::now();
    while let Err(error) = store.append(queue.id, vec![message(1 << 100)]).await {
        assert_eq!(error.code(), Code::StorageFull);
        assert!(freed.elapsed() < Duration::from_secs(10), "sends are refused although there is room");
    }
    store.close().await;
    let db = rusqlite::Connection::open(folder.path().join("a.db")).unwrap();
    let verdict: String = db.query_row("pragma integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
}
