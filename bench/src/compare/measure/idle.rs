//! What workers at default settings ask a server that has nothing for them: all stores at once, each in its own
//! database, counted in the log of the server.

use std::time::Duration;

use super::Place;
use crate::compare::figures::Figures;
use crate::compare::programs::{Kind, Program};
use crate::compare::sizes::Sizes;
use crate::failed;
use crate::postgres::Bench;

/// The mark of a line of the log that a statement of this database made.
fn statement_marks(database: &str) -> [String; 2] {
    ["statement:", "execute"].map(|kind| format!("db={database} LOG:  {kind}"))
}

/// Measures all of them.
pub(crate) async fn idle(
    bench: &Bench,
    programs: &[Program],
    sizes: &Sizes,
    figures: &mut Figures,
) -> millpond::Result<()> {
    let mut places = Vec::new();
    for program in programs.iter().filter(|program| program.kind != Kind::BareTable) {
        match started(bench, program).await {
            Ok(place) => places.push(place),
            Err(error) => figures.failed.push((program.key, "idle", error.causes())),
        }
    }
    let (settle, count) = sizes.idle_seconds;
    tokio::time::sleep(Duration::from_secs(settle)).await;
    set(bench, "log_statement", "all").await?;
    // The first second is that in which the backends learn it.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = bench.server.log().len();
    tokio::time::sleep(Duration::from_secs(count)).await;
    let log = bench.server.log();
    set(bench, "log_statement", "none").await?;
    let said = log.get(before..).unwrap_or_default();
    for mut place in places {
        let marks = statement_marks(&place.database);
        let asked = said.lines().filter(|line| marks.iter().any(|mark| line.contains(mark.as_str()))).count();
        figures.add(place.key(), "idle_queries_per_s", asked as f64 / count as f64);
        place.process.ask("stop").await?;
        place.leave().await?;
    }
    Ok(())
}

async fn started<'b>(bench: &'b Bench, program: &'b Program) -> millpond::Result<Place<'b>> {
    let mut place = Place::new(bench, program).await?;
    place.process.ask("start default 0").await?;
    Ok(place)
}

async fn set(bench: &Bench, name: &str, value: &str) -> millpond::Result<()> {
    let lost = |error| failed("set the log of the server", error);
    bench.client.batch_execute(&format!("alter system set {name} = '{value}'")).await.map_err(lost)?;
    bench.client.batch_execute("select pg_reload_conf()").await.map_err(lost)
}
