//! What holds of every adapter, in each of the three databases.

use std::error::Error;
use std::time::Duration;

use millpond::Pond;
use millpond_testkit::servers::mariadb::Mariadb;
use millpond_testkit::servers::postgres::{Fsync, Postgres};

use crate::orders::MAIL;

/// Ample on a slow machine.
const MOVED_WITHIN: Duration = Duration::from_secs(30);

/// What a rollback takes back was never sent; what a commit makes is delivered; a repetition is the same message.
pub(crate) async fn exactly_what_is_committed_is_sent(url: &str, place_order: impl AsyncFn(&Pond, bool)) {
    let pond = Pond::open(url).await.expect("the store opens");
    pond.declare(&MAIL).await.expect("the queue is declared");
    let queue = async || pond.store().queues().await.expect("the queues are listed").remove(0);
    place_order(&pond, false).await;
    assert_eq!(queue().await.sent, 0, "nothing was sent");
    place_order(&pond, true).await;
    assert_eq!(queue().await.sent, 2, "both messages were sent");
    place_order(&pond, true).await;
    assert_eq!(queue().await.sent, 3, "a second message with its dedup key is the same");
    // The pond looks for what was committed, and moves it too.
    let moved = async {
        while queue().await.ready < 3 {
            pond.store().relay(100).await.expect("the relay answers");
        }
    };
    tokio::time::timeout(MOVED_WITHIN, moved).await.expect("they are ready for a worker");
    let queue = queue().await;
    assert_eq!((queue.ready, queue.scheduled), (3, 0));
    pond.close().await;
}

/// The same in each database; `place_order` is given its URL.
pub(crate) async fn in_every_database<E: std::fmt::Debug>(
    place_order: impl AsyncFn(&Pond, &str, bool) -> Result<(), E>,
) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let file = format!("sqlite://{}", folder.path().join("shop.db").display());
    let postgres = tokio::task::block_in_place(|| Postgres::start(Fsync::Off, &[]));
    let mariadb = tokio::task::block_in_place(|| Mariadb::start(Fsync::Off, &[]));
    for url in [&file, postgres.url(), mariadb.url()] {
        let place = async |pond: &Pond, commit| place_order(pond, url, commit).await.expect(url);
        exactly_what_is_committed_is_sent(url, place).await;
    }
    Ok(())
}
