//! Transactional sends on SQLite: an order and a message about it in one transaction, beside the same transaction without
//! the message, on one connection.

use std::time::{Duration, Instant};

use millpond::Pond;
use millpond::sqlite::SqliteUnit;
use millpond::sqlite::rusqlite::{Connection, TransactionBehavior, params};
use tokio::task::block_in_place;

use crate::failed;
use crate::payload::{MAIL, Mail, mail};
use crate::report::{Report, median};
use crate::send::fresh;

const TRANSACTIONS: u64 = 3_000;

/// As long as the store itself waits for another writer.
const BUSY: Duration = Duration::from_secs(5);

const ORDERS: &str =
    "create table orders (id integer primary key, customer text not null, total integer not null)";

const ORDER: &str = "insert into orders (customer, total) values (?1, ?2)";

pub(crate) async fn transactions(report: &mut Report, rounds: usize) -> millpond::Result<()> {
    let (mut bare, mut send, mut unit, mut ratios) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let floor = in_own_transactions(|_, _, _| Ok(())).await?;
        let ours = in_own_transactions(|pond, tx, mail| {
            pond.within(tx).send(&MAIL, [mail])?;
            Ok(())
        })
        .await?;
        bare.push(floor);
        send.push(ours);
        ratios.push(ours / floor);
        unit.push(in_units().await?);
    }
    report.add("tx_bare_per_second", median(bare));
    report.add("tx_send_per_second", median(send));
    report.add("tx_unit_per_second", median(unit));
    report.add("tx_send_vs_bare", median(ratios));
    Ok(())
}

/// Transactions a second on a connection of the program's own, with the settings of the store; `send` is in each.
async fn in_own_transactions(
    send: impl Fn(&Pond, &mut millpond::sqlite::rusqlite::Transaction<'_>, Mail) -> millpond::Result<()>,
) -> millpond::Result<f64> {
    let lost = |error| failed("measure a transaction", error);
    let (folder, pond) = fresh().await?;
    let rate = block_in_place(|| {
        let mut conn = Connection::open(folder.path().join("bench.db")).map_err(lost)?;
        conn.busy_timeout(BUSY).map_err(lost)?;
        conn.pragma_update(None, "synchronous", "full").map_err(lost)?;
        conn.execute_batch(ORDERS).map_err(lost)?;
        let started = Instant::now();
        for number in 0..TRANSACTIONS {
            let mail = mail(number);
            let mut tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(lost)?;
            tx.prepare_cached(ORDER)
                .and_then(|mut order| order.execute(params![mail.to, number.cast_signed()]))
                .map_err(lost)?;
            send(&pond, &mut tx, mail)?;
            tx.commit().map_err(lost)?;
        }
        millpond::Result::Ok(TRANSACTIONS as f64 / started.elapsed().as_secs_f64())
    });
    pond.close().await;
    rate
}

/// The same in units of work.
async fn in_units() -> millpond::Result<f64> {
    let (_folder, pond) = fresh().await?;
    let mut unit = pond.begin().await?;
    unit.sqlite(|db| db.execute_batch(ORDERS)).await?;
    unit.commit().await?;
    let started = Instant::now();
    for number in 0..TRANSACTIONS {
        let mail = mail(number);
        let mut unit = pond.begin().await?;
        let customer = mail.to.clone();
        unit.sqlite(move |db| db.prepare_cached(ORDER)?.execute(params![customer, number.cast_signed()]))
            .await?;
        unit.send(&MAIL, [mail]).await?;
        unit.commit().await?;
    }
    let rate = TRANSACTIONS as f64 / started.elapsed().as_secs_f64();
    pond.close().await;
    Ok(rate)
}
