//! Reads commands, does them, and answers.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::handled::{Handled, micros};
use crate::{Failure, Outcome, Queue, Settings, Way, mail, mails};

/// How often it is looked whether enough is handled.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// How often the store is asked what is left.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// How long a message may take to be picked up.
const PICKUP_MAX: Duration = Duration::from_secs(70);

/// Messages of a call that schedules.
const SCHEDULED_BATCH: u64 = 1_000;

/// Runs the program of a queue until its input ends, on the database that its one argument names.
pub fn main<Q: Queue>() -> ExitCode {
    serve::<Q>(&std::env::args().nth(1).unwrap_or_default())
}

/// The same, on the database at `url`.
pub fn serve<Q: Queue>(url: &str) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(answer_all::<Q>(url)),
        Err(error) => Err(error.into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{}", json!({ "error": error.to_string() }));
            ExitCode::FAILURE
        }
    }
}

async fn answer_all<Q: Queue>(url: &str) -> Outcome<()> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut program: Option<Program<Q>> = None;
    while let Some(line) = lines.next_line().await? {
        if line == "about" {
            println!("{}", serde_json::to_value(Q::about())?);
            continue;
        }
        if program.is_none() {
            program = Some(Program::new(Q::open(url).await?));
        }
        let Some(program) = program.as_mut() else { continue };
        let answer = program.answer(&line).await;
        println!("{}", answer.unwrap_or_else(|error| json!({ "error": error.to_string() })));
    }
    Ok(())
}

struct Program<Q: Queue> {
    queue: Arc<Q>,
    /// Open connections for transactions: they know their statements from the second call on.
    sessions: Vec<Q::Session>,
    next: Arc<AtomicU64>,
    handled: Handled,
    started: Instant,
}

impl<Q: Queue> Program<Q> {
    fn new(queue: Q) -> Self {
        let (next, handled) = (Arc::default(), Handled::default());
        Self { queue: Arc::new(queue), sessions: Vec::new(), next, handled, started: Instant::now() }
    }

    async fn answer(&mut self, line: &str) -> Outcome<Value> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["prepare"] => self.queue.prepare().await.map(|()| json!({})),
            ["send", count, batch, tasks, seconds] => {
                let limit = Duration::from_secs(number(seconds)?);
                self.send(number(count)?, number(batch)?, number(tasks)?, limit).await
            }
            ["transact", way, count, tasks, seconds] => {
                let limit = Duration::from_secs(number(seconds)?);
                self.transact(way_named(way)?, number(count)?, number(tasks)?, limit).await
            }
            ["ready"] => self.queue.ready().await.map(|()| json!({})),
            ["schedule", count] => self.schedule(number(count)?).await,
            ["send_one", id] => {
                self.queue.send_one(mail(number(id)?)).await?;
                Ok(json!({ "at_us": micros() }))
            }
            ["start", settings, retries] => self.start(named(settings)?, number(retries)?).await,
            ["handled", count, seconds] => self.handled(number(count)?, number(seconds)?).await,
            ["settled", seconds] => self.settled(number(seconds)?).await,
            ["picked", id] => self.picked(number(id)?).await,
            ["stop"] => self.queue.stop().await.map(|()| json!({})),
            ["prune"] => self.queue.prune().await.map(|()| json!({})),
            _ => Err(format!("there is no command `{line}`").into()),
        }
    }

    async fn send(&self, count: u64, batch: u64, tasks: u64, limit: Duration) -> Outcome<Value> {
        let (started, calls) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let calls_max = count / batch;
        let mut running = JoinSet::new();
        for _ in 0..tasks {
            let (queue, next, calls) = (self.queue.clone(), self.next.clone(), calls.clone());
            running.spawn(async move {
                let mut sent = 0;
                while started.elapsed() < limit && calls.fetch_add(1, Ordering::Relaxed) < calls_max {
                    let first = next.fetch_add(batch, Ordering::Relaxed);
                    match batch {
                        1 => queue.send_one(mail(first)).await?,
                        _ => queue.send(mails(first, batch)).await?,
                    }
                    sent += batch;
                }
                Ok::<u64, Failure>(sent)
            });
        }
        let mut sent = 0;
        while let Some(ended) = running.join_next().await {
            sent += ended??;
        }
        Ok(json!({ "sent": sent, "seconds": started.elapsed().as_secs_f64() }))
    }

    async fn transact(&mut self, way: Way, count: u64, tasks: u64, limit: Duration) -> Outcome<Value> {
        let mut sessions = std::mem::take(&mut self.sessions);
        while (sessions.len() as u64) < tasks {
            sessions.push(self.queue.session().await?);
        }
        self.sessions = sessions.split_off(usize::try_from(tasks)?);
        let (started, calls) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let mut running = JoinSet::new();
        for mut session in sessions {
            let (queue, next, calls) = (self.queue.clone(), self.next.clone(), calls.clone());
            running.spawn(async move {
                let mut done = 0;
                while started.elapsed() < limit && calls.fetch_add(1, Ordering::Relaxed) < count {
                    let mail = mail(next.fetch_add(1, Ordering::Relaxed));
                    queue.transact(&mut session, way, mail).await?;
                    done += 1;
                }
                Ok::<(u64, Q::Session), Failure>((done, session))
            });
        }
        let mut all = 0;
        while let Some(ended) = running.join_next().await {
            let (done, session) = ended??;
            all += done;
            self.sessions.push(session);
        }
        Ok(json!({ "done": all, "seconds": started.elapsed().as_secs_f64() }))
    }

    async fn schedule(&self, count: u64) -> Outcome<Value> {
        for _ in 0..count / SCHEDULED_BATCH {
            let first = self.next.fetch_add(SCHEDULED_BATCH, Ordering::Relaxed);
            self.queue.schedule(mails(first, SCHEDULED_BATCH)).await?;
        }
        Ok(json!({}))
    }

    async fn start(&mut self, settings: Settings, retries: u64) -> Outcome<Value> {
        self.handled = Handled::with_retries(retries);
        self.started = Instant::now();
        self.queue.start(settings, self.handled.clone()).await.map(|()| json!({}))
    }

    async fn handled(&self, count: u64, seconds: u64) -> Outcome<Value> {
        while self.handled.count() < count && self.started.elapsed().as_secs() < seconds {
            sleep(LOOK_EVERY).await;
        }
        Ok(json!({ "handled": self.handled.count(), "seconds": self.started.elapsed().as_secs_f64() }))
    }

    async fn settled(&self, seconds: u64) -> Outcome<Value> {
        let started = Instant::now();
        loop {
            let left = self.queue.left().await?;
            if left == 0 || seconds <= started.elapsed().as_secs() {
                return Ok(json!({ "left": left, "seconds": self.started.elapsed().as_secs_f64() }));
            }
            sleep(ASK_EVERY).await;
        }
    }

    async fn picked(&self, id: u64) -> Outcome<Value> {
        let started = Instant::now();
        loop {
            if let Some(at) = self.handled.picked(id) {
                return Ok(json!({ "at_us": at }));
            }
            if PICKUP_MAX < started.elapsed() {
                return Err(format!("message {id} was not picked up").into());
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

fn number(word: &str) -> Outcome<u64> {
    word.parse().map_err(|error| format!("`{word}` is not a number: {error}").into())
}

fn named(word: &str) -> Outcome<Settings> {
    match word {
        "best" => Ok(Settings::Best),
        "default" => Ok(Settings::Default),
        "small" => Ok(Settings::Small),
        _ => Err(format!("there are no settings `{word}`").into()),
    }
}

fn way_named(word: &str) -> Outcome<Way> {
    match word {
        "bare" => Ok(Way::Bare),
        "send" => Ok(Way::Send),
        "unit" => Ok(Way::Unit),
        "sql" => Ok(Way::Sql),
        _ => Err(format!("there is no way `{word}`").into()),
    }
}
