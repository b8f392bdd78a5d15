//! Millpond: a program of its users, measured as the others are.

use std::process::ExitCode;
use std::time::Duration;

use millpond::postgres::PostgresUnit;
use millpond::postgres::tokio_postgres::types::{ToSql, Type};
use millpond::postgres::tokio_postgres::{Client, NoTls, Statement, connect};
use millpond::{ItemOptions, Job, Pond, Verdict, Worker};
use peer::{About, Failure, Handled, Mail, ORDER, Outcome, Settings, Way};
use tokio::sync::{Mutex, OnceCell, watch};
use tokio::task::JoinSet;

const MAIL: millpond::Queue<Mail> = millpond::Queue::new("mail");

const BEST_CONCURRENCY: usize = 100;
const SMALL_WORKERS: usize = 50;

/// Until a message that failed is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Rows of one table in one call of the upkeep, as a node asks for them.
const RETAIN_ROWS: usize = 10_000;

/// The node that prunes.
const NODE: &str = "bench";

/// What is done is past its retention after this.
const SHORT: Duration = Duration::from_secs(1);

/// Between two looks at whether this node may prune: another one may have had the duty.
const DUTY_LOOK_EVERY: Duration = Duration::from_secs(2);
const DUTY_LOOKS_MAX: usize = 60;

/// Rows that the relay moves at once, as a node asks for them.
const RELAY_ROWS: usize = 500;

/// Units of work that are open at once, each on a connection of the store, and what else the store does meanwhile.
const CONNECTIONS: usize = 64 + 8;

const SEND: &str = "select millpond.send('mail', $1::bytea)";

/// A connection of the program's own.
struct Session {
    client: Client,
    order: Statement,
    /// Prepared when it is first needed: bare transactions need no store.
    send: Option<Statement>,
}

struct Ours {
    url: String,
    pond: Pond,
    /// With a connection for each unit of work; everything else is measured with as many as come by themselves.
    roomy: OnceCell<Pond>,
    running: Mutex<Option<(watch::Sender<bool>, JoinSet<millpond::Result<()>>)>>,
}

impl Ours {
    async fn open_roomy(&self) -> millpond::Result<Pond> {
        let pond = Pond::open(&format!("{}?connections={CONNECTIONS}", self.url)).await?;
        pond.declare(&MAIL).await?;
        Ok(pond)
    }
}

async fn handler(job: Job<Mail>, handled: Handled) -> Verdict {
    if handled.run(&job.body, job.attempt) {
        return Verdict::Ack;
    }
    Verdict::Retry { after: Some(RETRY_AFTER) }
}

impl peer::Queue for Ours {
    type Session = Session;

    fn about() -> About {
        About {
            name: "Millpond",
            version: env!("CARGO_PKG_VERSION"),
            best: "1 worker, 100 handlers; everything else as it comes",
            default: "1 worker, 10 handlers: nothing is set",
            small: "50 workers of 1 handler each",
            transactions: &[Way::Bare, Way::Send, Way::Unit, Way::Sql],
        }
    }

    async fn open(url: &str) -> Outcome<Self> {
        let pond = Pond::open(url).await?;
        Ok(Self { url: url.to_owned(), pond, roomy: OnceCell::new(), running: Mutex::new(None) })
    }

    async fn prepare(&self) -> Outcome<()> {
        self.pond.declare(&MAIL).await?;
        Ok(())
    }

    async fn send(&self, mails: Vec<Mail>) -> Outcome<()> {
        self.pond.send(&MAIL, mails).await?;
        Ok(())
    }

    async fn send_one(&self, mail: Mail) -> Outcome<()> {
        self.pond.send(&MAIL, [mail]).await?;
        Ok(())
    }

    async fn session(&self) -> Outcome<Session> {
        let (client, connection) = connect(&self.url, NoTls).await?;
        tokio::spawn(connection);
        let order = client.prepare(ORDER).await?;
        Ok(Session { client, order, send: None })
    }

    async fn transact(&self, session: &mut Session, way: Way, mail: Mail) -> Outcome<()> {
        let total = mail.id.cast_signed();
        if way == Way::Unit {
            let mut unit = self.roomy.get_or_try_init(|| self.open_roomy()).await?.begin().await?;
            let order: [(&(dyn ToSql + Sync), Type); 2] = [(&mail.to, Type::TEXT), (&total, Type::INT8)];
            unit.postgres().await?.execute_typed(ORDER, &order).await?;
            unit.send(&MAIL, [mail]).await?;
            unit.commit().await?;
            return Ok(());
        }
        let Session { client, order, send } = session;
        if way == Way::Sql && send.is_none() {
            *send = Some(client.prepare(SEND).await?);
        }
        let mut tx = client.transaction().await?;
        tx.execute(&*order, &[&mail.to, &total]).await?;
        match send {
            _ if way == Way::Bare => {}
            Some(send) if way == Way::Sql => {
                drop(tx.query_one(&*send, &[&serde_json::to_vec(&mail)?]).await?)
            }
            _ => drop(self.pond.within(&mut tx).send(&MAIL, [mail]).await?),
        }
        tx.commit().await?;
        Ok(())
    }

    /// What a node does that hears of nothing, as with plain SQL.
    async fn ready(&self) -> Outcome<()> {
        while self.pond.store().relay(RELAY_ROWS).await?.moved != 0 {}
        Ok(())
    }

    async fn schedule(&self, mails: Vec<Mail>) -> Outcome<()> {
        let later = mails.into_iter().map(|mail| mail.delay(Duration::from_secs(3_600)));
        self.pond.send(&MAIL, later).await?;
        Ok(())
    }

    async fn start(&self, settings: Settings, handled: Handled) -> Outcome<()> {
        let worker = || Worker::new(&self.pond).state(handled.clone()).handle(&MAIL, handler);
        let workers = match settings {
            Settings::Best => vec![worker().concurrency(BEST_CONCURRENCY)],
            Settings::Default => vec![worker()],
            Settings::Small => (0..SMALL_WORKERS).map(|_| worker().concurrency(1)).collect(),
        };
        let (stop, stopped) = watch::channel(false);
        let mut running = JoinSet::new();
        for worker in workers {
            let mut stopped = stopped.clone();
            running.spawn(worker.run_until(async move { drop(stopped.changed().await) }));
        }
        *self.running.lock().await = Some((stop, running));
        Ok(())
    }

    async fn stop(&self) -> Outcome<()> {
        let Some((stop, mut running)) = self.running.lock().await.take() else { return Ok(()) };
        stop.send(true)?;
        while let Some(ended) = running.join_next().await {
            ended??;
        }
        Ok(())
    }

    async fn left(&self) -> Outcome<i64> {
        let queues = self.pond.store().queues().await?;
        let left: u64 = queues.iter().map(|queue| queue.ready + queue.leased + queue.retrying).sum();
        Ok(i64::try_from(left)?)
    }

    /// The upkeep of a node, with a retention of a second. What is left of the log is its last message.
    async fn prune(&self) -> Outcome<()> {
        let settings = *MAIL.clone().retention(SHORT).settings();
        self.pond.store().declare(MAIL.name().to_owned(), settings).await?;
        tokio::time::sleep(SHORT * 2).await;
        for _ in 0..DUTY_LOOKS_MAX {
            let mut rows = 0;
            loop {
                match self.pond.store().retain(NODE.to_owned(), RETAIN_ROWS).await? {
                    0 if rows == 0 => break,
                    0 => return Ok(()),
                    gone => rows += gone,
                }
            }
            tokio::time::sleep(DUTY_LOOK_EVERY).await;
        }
        Err(Failure::from("nothing was past its retention"))
    }
}

fn main() -> ExitCode {
    peer::main::<Ours>()
}
