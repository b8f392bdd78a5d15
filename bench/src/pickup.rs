//! Pickup: from the return of `send` to the first line of the handler, on a queue that is idle.

use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use millpond::{Job, PollSettings, Pond, Verdict, Worker};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::payload::{MAIL, Mail, mail};
use crate::report::{Goal, Report, percentile};
use crate::send::{fill, fresh, url};
use crate::{failed, usage};

const SAMPLES: u64 = 200;

/// How long one message may take before the measurement fails.
const LIMIT: Duration = Duration::from_secs(10);

/// The cadence of a worker that has been idle for over a minute, from its first poll on.
fn idle_cadence() -> PollSettings {
    PollSettings {
        min: Duration::from_millis(500),
        max: Duration::from_millis(500),
        ..PollSettings::default()
    }
}

/// A pause of random length, so that no sample meets the polls in the same phase.
pub(crate) async fn random_pause() {
    let mut byte = [0];
    let _ = getrandom::fill(&mut byte);
    sleep(Duration::from_millis(60 + u64::from(byte[0]))).await;
}

pub(crate) async fn in_process(report: &mut Report) -> millpond::Result<()> {
    let (_folder, pond) = fresh().await?;
    let samples = samples(&pond).await?;
    pond.close().await;
    report.goal("pickup_p50_ms", percentile(samples.clone(), 0.5), Goal::AtMost(1.0));
    report.goal("pickup_p99_ms", percentile(samples, 0.99), Goal::AtMost(5.0));
    Ok(())
}

/// How long each of some messages waited, in milliseconds.
pub(crate) async fn samples(pond: &Pond) -> millpond::Result<Vec<f64>> {
    let (tell, mut arrived) = mpsc::channel::<Instant>(8);
    async fn handler(_: Job<Mail>, tell: mpsc::Sender<Instant>) -> Verdict {
        let now = Instant::now();
        let _ = tell.send(now).await;
        Verdict::Ack
    }
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = Worker::new(pond).state(tell).handle(&MAIL, handler).poll(idle_cadence());
    let worker = tokio::spawn(worker.run_until(async move { drop(stopped.await) }));
    let mut samples = Vec::new();
    for number in 0..SAMPLES {
        random_pause().await;
        pond.send(&MAIL, [mail(number)]).await?;
        let sent = Instant::now();
        let picked = timeout(LIMIT, arrived.recv()).await.ok().flatten();
        let picked = picked.ok_or_else(|| failed("measure pickup", "a message was not picked up"))?;
        samples.push(picked.saturating_duration_since(sent).as_secs_f64() * 1_000.0);
    }
    drop(stop);
    worker.await.map_err(|error| failed("end the worker", error))??;
    Ok(samples)
}

pub(crate) async fn between_processes(report: &mut Report) -> millpond::Result<()> {
    let (folder, pond) = fresh().await?;
    let program = std::env::current_exe().map_err(|error| failed("find this program", error))?;
    let mut child = Command::new(program)
        .args(["worker", &url(&folder)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed("start a worker process", error))?;
    let stdout = child.stdout.take().ok_or_else(|| failed("start a worker process", "it has no output"))?;
    let mut lines = BufReader::new(stdout).lines();
    let mut samples = Vec::new();
    for number in 0..SAMPLES {
        if number != 0 {
            random_pause().await;
        }
        pond.send(&MAIL, [mail(number)]).await?;
        let sent = micros();
        let line =
            timeout(LIMIT, lines.next_line()).await.map_err(|error| failed("measure pickup", error))?;
        let picked = line.ok().flatten().and_then(|line| line.parse::<i64>().ok());
        let picked = picked.ok_or_else(|| failed("measure pickup", "the worker process ended"))?;
        // The first message waits for the process to start.
        if number != 0 {
            samples.push((picked - sent).max(0) as f64 / 1_000.0);
        }
    }
    report.goal("pickup_process_p50_ms", percentile(samples.clone(), 0.5), Goal::AtMost(30.0));
    report.add("pickup_process_p99_ms", percentile(samples, 0.99));
    // The same process then drains a backlog, which is when it holds most.
    fill(&pond, 100_000).await?;
    for _ in 0..100_000 {
        let line = timeout(LIMIT, lines.next_line()).await.map_err(|error| failed("drain", error))?;
        line.map_err(|error| failed("drain", error))?;
    }
    let id = child.id().unwrap_or_default().to_string();
    report.goal("worker_rss_mb", usage::peak_rss_mb(&id), Goal::AtMost(80.0));
    drop(child.stdin.take());
    timeout(LIMIT, child.wait()).await.map_err(|error| failed("end the worker process", error))?.ok();
    pond.close().await;
    Ok(())
}

/// The worker process: prints the time of each handler's first line, until its input ends.
pub(crate) async fn worker(url: &str) -> millpond::Result<()> {
    let pond = Pond::open(url).await?;
    async fn handler(_: Job<Mail>) -> Verdict {
        println!("{}", micros());
        Verdict::Ack
    }
    let input_ended = async {
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        while let Ok(Some(_)) = lines.next_line().await {}
    };
    Worker::new(&pond).handle(&MAIL, handler).poll(idle_cadence()).run_until(input_ended).await?;
    pond.close().await;
    Ok(())
}

fn micros() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}
