//! Transactional sends: an order and a message about it in one transaction, beside the same transaction without the
//! message. What the server spends is counted until every message may be worked on.

use std::time::Instant;

use millpond::Pond;
use millpond::mysql::MysqlUnit;
use millpond::mysql::mysql_async::prelude::Queryable;
use millpond::mysql::mysql_async::{Conn, Error, TxOpts};
use millpond_testkit::servers::mariadb::fresh_prefix;
use tokio::task::JoinSet;

use super::{Bench, Figures, ratio};
use crate::failed;
use crate::payload::{MAIL, mail};
use crate::report::Report;

const CONNECTIONS: u64 = 64;
const TRANSACTIONS: u64 = 12_800;

/// Of the store: one for each unit of work, and some for what it does meanwhile.
const STORE_CONNECTIONS: u64 = CONNECTIONS + 8;

/// Rows that the relay moves at once, as a node asks for them.
const RELAY_ROWS: usize = 500;

const ORDERS: &str = "create table orders (
        id bigint not null auto_increment primary key, customer varchar(200) not null, total bigint not null,
        placed_at datetime(6) not null default current_timestamp(6)
    ) engine = InnoDB default charset = utf8mb4";

const ORDER: &str = "insert into orders (customer, total) values (?, ?)";

/// How a message is sent in the transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Bare,
    Send,
    Unit,
}

pub(super) async fn transactions(bench: &Bench, report: &mut Report, rounds: usize) -> millpond::Result<()> {
    let (mut bare, mut send, mut unit) = (Figures::default(), Figures::default(), Figures::default());
    for _ in 0..rounds {
        measured(bench, Way::Bare, &mut bare).await?;
        measured(bench, Way::Send, &mut send).await?;
        measured(bench, Way::Unit, &mut unit).await?;
    }
    let cost = ratio(&send.cpu_us, &bare.cpu_us);
    bare.report(report, "tx_bare_64");
    send.report(report, "tx_send_64");
    unit.report(report, "tx_unit_64");
    report.add("tx_send_cost_vs_bare", cost);
    Ok(())
}

async fn measured(bench: &Bench, way: Way, figures: &mut Figures) -> millpond::Result<()> {
    let lost = |error: Error| failed("measure a transaction", error);
    let url = bench.server.url();
    let pond =
        Pond::open(&format!("{url}?prefix={}&connections={STORE_CONNECTIONS}", fresh_prefix())).await?;
    pond.declare(&MAIL).await?;
    let mut conns = Vec::new();
    for _ in 0..CONNECTIONS {
        conns.push(bench.conn().await?);
    }
    conns[0].query_drop("drop table if exists orders").await.map_err(lost)?;
    conns[0].query_drop(ORDERS).await.map_err(lost)?;
    // The first of each connection connects and prepares.
    let (_, conns) = run(&pond, way, conns, 1).await?;
    let meter = bench.meter().await?;
    let (seconds, _) = run(&pond, way, conns, TRANSACTIONS / CONNECTIONS).await?;
    while pond.store().relay(RELAY_ROWS).await?.moved != 0 {}
    figures.take(TRANSACTIONS / CONNECTIONS * CONNECTIONS, seconds, meter.spent().await?);
    pond.close().await;
    Ok(())
}

/// So many transactions on each connection; answers the seconds, and the connections.
async fn run(pond: &Pond, way: Way, conns: Vec<Conn>, each: u64) -> millpond::Result<(f64, Vec<Conn>)> {
    let (started, mut tasks) = (Instant::now(), JoinSet::new());
    for (task, mut conn) in conns.into_iter().enumerate() {
        let pond = pond.clone();
        tasks.spawn(async move {
            for number in 0..each {
                transact(&pond, way, &mut conn, task as u64 * 1_000_000 + number).await?;
            }
            millpond::Result::Ok(conn)
        });
    }
    let mut conns = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        conns.push(ended.map_err(|error| failed("measure a transaction", error))??);
    }
    Ok((started.elapsed().as_secs_f64(), conns))
}

async fn transact(pond: &Pond, way: Way, conn: &mut Conn, number: u64) -> millpond::Result<()> {
    let lost = |error: Error| failed("measure a transaction", error);
    let mail = mail(number);
    let order = (mail.to.clone(), number);
    if way == Way::Unit {
        let mut unit = pond.begin().await?;
        unit.mysql().await?.exec_drop(ORDER, order).await.map_err(lost)?;
        unit.send(&MAIL, [mail]).await?;
        return unit.commit().await.map(drop);
    }
    let mut tx = conn.start_transaction(TxOpts::default()).await.map_err(lost)?;
    tx.exec_drop(ORDER, order).await.map_err(lost)?;
    if way == Way::Send {
        pond.within(&mut tx).send(&MAIL, [mail]).await?;
    }
    tx.commit().await.map_err(lost)
}
