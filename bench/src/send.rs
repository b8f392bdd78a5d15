//! Sending: batches of a thousand, and single durable sends from many tasks at once.

use std::time::Instant;

use millpond::Pond;

use crate::payload::{MAIL, Mail, bodies, mail, mails};
use crate::report::{Goal, Report, median};
use crate::{failed, floor};

const BATCH: u64 = 1_000;
const BATCH_MESSAGES: u64 = 200_000;
const SINGLE_MESSAGES: u64 = 30_000;
const SINGLE_TASKS: u64 = 64;
const FLOOR_SINGLES: u64 = 2_000;

/// A pond on a fresh file in a folder of its own.
pub(crate) async fn fresh() -> millpond::Result<(tempfile::TempDir, Pond)> {
    let folder = tempfile::tempdir().map_err(|error| failed("make a folder", error))?;
    let pond = Pond::open(&url(&folder)).await?;
    pond.declare(&MAIL).await?;
    Ok((folder, pond))
}

pub(crate) fn url(folder: &tempfile::TempDir) -> String {
    format!("sqlite://{}", folder.path().join("bench.db").display())
}

/// Sends `count` messages, a thousand to a call, one call after the other.
pub(crate) async fn fill(pond: &Pond, count: u64) -> millpond::Result<()> {
    for batch in 0..count / BATCH {
        pond.send(&MAIL, (batch * BATCH..).take(BATCH as usize).map(mail)).await?;
    }
    Ok(())
}

/// The same, with the bodies made beforehand.
async fn fill_with(pond: &Pond, mails: Vec<Vec<Mail>>) -> millpond::Result<()> {
    for batch in mails {
        pond.send(&MAIL, batch).await?;
    }
    Ok(())
}

pub(crate) async fn batches(report: &mut Report, rounds: usize) -> millpond::Result<()> {
    let (mut floors, mut ours, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let bodies = bodies(BATCH_MESSAGES);
    for _ in 0..rounds {
        let floor = on_thread(|folder| floor::insert(folder, &bodies))?;
        let (folder, pond) = fresh().await?;
        let mails = mails(BATCH_MESSAGES).chunks(BATCH as usize).map(<[Mail]>::to_vec).collect();
        let started = Instant::now();
        fill_with(&pond, mails).await?;
        let rate = BATCH_MESSAGES as f64 / started.elapsed().as_secs_f64();
        pond.close().await;
        drop(folder);
        floors.push(floor);
        ours.push(rate);
        ratios.push(rate / floor);
    }
    report.add("insert_floor_per_second", median(floors));
    report.add("batch_send_per_second", median(ours));
    report.goal("batch_send_vs_floor", median(ratios), Goal::AtLeast(0.7));
    Ok(())
}

pub(crate) async fn singles(report: &mut Report, rounds: usize) -> millpond::Result<()> {
    let (mut floors, mut ours, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let bodies = bodies(FLOOR_SINGLES);
    for _ in 0..rounds {
        let floor = on_thread(|folder| floor::insert_one_by_one(folder, &bodies))?;
        let rate = concurrent_singles().await?;
        floors.push(floor);
        ours.push(rate);
        ratios.push(rate / floor);
    }
    report.add("one_insert_per_commit_per_second", median(floors));
    report.add("single_send_64_per_second", median(ours));
    report.goal("group_commit_gain", median(ratios), Goal::AtLeast(8.0));
    Ok(())
}

async fn concurrent_singles() -> millpond::Result<f64> {
    let (_folder, pond) = fresh().await?;
    let started = Instant::now();
    let tasks: Vec<_> = (0..SINGLE_TASKS)
        .map(|task| {
            let pond = pond.clone();
            tokio::spawn(async move {
                for number in 0..SINGLE_MESSAGES / SINGLE_TASKS {
                    pond.send(&MAIL, [mail(task * 1_000_000 + number)]).await?;
                }
                millpond::Result::Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await.map_err(|error| failed("send", error))??;
    }
    let rate = (SINGLE_MESSAGES / SINGLE_TASKS * SINGLE_TASKS) as f64 / started.elapsed().as_secs_f64();
    pond.close().await;
    Ok(rate)
}

/// Runs a floor in a fresh folder, while nothing else runs.
pub(crate) fn on_thread(
    measure: impl FnOnce(&std::path::Path) -> millpond::sqlite::rusqlite::Result<f64>,
) -> millpond::Result<f64> {
    let folder = tempfile::tempdir().map_err(|error| failed("make a folder", error))?;
    tokio::task::block_in_place(|| measure(folder.path())).map_err(|error| failed("measure a floor", error))
}
