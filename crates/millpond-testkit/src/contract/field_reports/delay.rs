//! Delays and due times.

use std::time::Duration;

use millpond_core::error::Code;
use millpond_core::state::State;
use millpond_core::time::Timestamp;
use millpond_engine::item::{Item, ItemOptions};

use crate::bench::{Bench, SETTINGS};

/// BR-012: a delay of 2³² ms and more wrapped around, and the message was delivered at once.
pub async fn br_012_a_delay_beyond_32_bits_is_exact_to_the_millisecond(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let began = bench.clock().now();
    let delays = [
        2_147_483_647,
        2_147_483_648,
        4_294_967_295,
        4_294_967_296,
        4_294_967_297,
        31_536_000_000,
        315_360_000_000,
    ];
    for delay in delays.map(Duration::from_millis) {
        let id = bench.send(&queue, [1.delay(delay)]).await[0];
        let view = bench.look(id).await;
        assert_eq!(view.ready_at.map(|due| due.since(began)), Some(delay));
    }
    bench.advance(Duration::from_secs(60));
    assert_eq!(bench.relay().await, 0, "none is due within a minute");
    let mut passed = Duration::from_secs(60);
    for delay in delays.map(Duration::from_millis) {
        bench.advance(delay - passed - Duration::from_millis(1));
        assert_eq!(bench.relay().await, 0, "{delay:?} is not over");
        bench.advance(Duration::from_millis(1));
        assert_eq!(bench.relay().await, 1, "{delay:?} is over");
        passed = delay;
    }
}

/// BR-130: a due time that is no number was stored, compared with nothing, and its job waited for ever.
pub async fn br_130_no_due_time_is_stored_that_never_comes(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let year = |year: i64| Timestamp::from_secs((year - 1970) * 31_556_952);
    let never: [Item<u32>; 6] = [
        1.at(Timestamp::from_micros(i64::MAX)),
        1.at(year(10_000)),
        1.delay(Duration::MAX),
        1.delay(Duration::from_secs(u64::MAX)),
        1.retry_until(Timestamp::from_micros(i64::MAX)),
        1.retry_until(Duration::MAX),
    ];
    for item in never {
        let refused = bench.node().pond.send(&queue, [item]).await.expect_err("it would never be due");
        assert_eq!((refused.code(), refused.index()), (Code::InvalidOption, Some(0)));
    }
    let counts = bench.counts(&queue).await;
    assert_eq!((counts.sent, counts.scheduled, counts.ready), (0, 0, 0), "nothing is stored");
    // What lies in the past is due now, however far.
    let past = [Timestamp::from_micros(i64::MIN), year(0), Timestamp::from_micros(0)];
    let ids = bench.send(&queue, past.map(|at| 1.at(at))).await;
    bench.relay().await;
    for id in ids {
        assert_eq!(bench.look(id).await.state, State::Ready);
    }
    assert_eq!(bench.holder(&queue).lease(10).await.messages.len(), 3);
}
