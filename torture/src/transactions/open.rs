//! A business transaction that is open, whoever holds it: a unit of work, or the driver of the database.

use std::time::Duration;

use millpond::mysql::MysqlUnit as _;
use millpond::mysql::mysql_async::prelude::Queryable as _;
use millpond::mysql::mysql_async::{Conn, Transaction as MysqlTransaction, TxOpts};
use millpond::postgres::PostgresUnit as _;
use millpond::postgres::tokio_postgres::{Client, IsolationLevel, Transaction as PostgresTransaction};
use millpond::sqlite::SqliteUnit as _;
use millpond::sqlite::rusqlite::{Connection, Transaction as SqliteTransaction, TransactionBehavior};
use millpond::{Pond, UnitOfWork};

use crate::database::{Database, mysql_conn, postgres_client};
use crate::transactions::announcement::{Announcement, NOTES, ORDERS, has_own_queue, queue_name};
use crate::transactions::errand::Means;
use crate::transactions::refusal::Done;

/// How long a statement of the driver waits for SQLite's one writer.
const BUSY_LIMIT: Duration = Duration::from_secs(30);

/// A connection of the program's own, beside the store.
pub(crate) enum Line {
    Sqlite(Connection),
    Postgres(Client),
    Mysql(Conn),
}

/// What the transaction of another may do to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// As the driver begins one.
    Usual,
    /// It reads all as it was at its first statement. In SQLite it becomes a writer when it writes, and waits for nobody.
    Snapshot,
    /// As if there was no other.
    Serialisable,
}

impl Line {
    pub(crate) async fn open(url: &str) -> Done<Self> {
        Ok(match Database::of(url) {
            Database::Sqlite => {
                let conn = Connection::open(url.trim_start_matches("sqlite://"))?;
                conn.execute_batch("pragma synchronous = full")?;
                Self::Sqlite(conn)
            }
            Database::Postgres => Self::Postgres(postgres_client(url).await?),
            Database::Mysql => {
                let mut conn = mysql_conn(url).await?;
                // What was changed since the first statement is refused, and not overwritten.
                conn.query_drop("set session innodb_snapshot_isolation = on").await?;
                Self::Mysql(conn)
            }
        })
    }
}

/// The transaction.
pub(crate) struct Open<'a> {
    tx: Tx<'a>,
    pond: &'a Pond,
    url: &'a str,
    means: Means,
}

enum Tx<'a> {
    Unit(Box<UnitOfWork>),
    Sqlite(SqliteTransaction<'a>),
    Postgres(PostgresTransaction<'a>),
    Mysql(MysqlTransaction<'a>),
}

impl<'a> Open<'a> {
    /// Begins one, on `line` if the driver holds it. A unit of work reads what is committed, whatever is asked for.
    pub(crate) async fn begin(
        pond: &'a Pond,
        url: &'a str,
        line: &'a mut Line,
        means: Means,
        isolation: Isolation,
    ) -> Done<Self> {
        let tx = match line {
            _ if means == Means::Unit => Tx::Unit(Box::new(pond.begin().await?)),
            Line::Sqlite(conn) => {
                let (behaviour, limit) = match isolation {
                    Isolation::Usual => (TransactionBehavior::Immediate, BUSY_LIMIT),
                    Isolation::Snapshot | Isolation::Serialisable => {
                        (TransactionBehavior::Deferred, Duration::ZERO)
                    }
                };
                conn.busy_timeout(limit)?;
                Tx::Sqlite(conn.transaction_with_behavior(behaviour)?)
            }
            Line::Postgres(client) => {
                let level = match isolation {
                    Isolation::Usual => IsolationLevel::ReadCommitted,
                    Isolation::Snapshot => IsolationLevel::RepeatableRead,
                    Isolation::Serialisable => IsolationLevel::Serializable,
                };
                Tx::Postgres(client.build_transaction().isolation_level(level).start().await?)
            }
            Line::Mysql(conn) => Tx::Mysql(conn.start_transaction(TxOpts::default()).await?),
        };
        Ok(Self { tx, pond, url, means })
    }

    /// Runs statements without values, in the words of `torture_…` and `millpond_…`.
    pub(crate) async fn run(&mut self, statement: &str) -> Done<()> {
        let statement = Database::of(self.url).dialect(statement, self.url);
        match &mut self.tx {
            Tx::Unit(unit) => run_in(unit, self.url, statement).await,
            Tx::Sqlite(tx) => Ok(tx.execute_batch(&statement)?),
            Tx::Postgres(tx) => Ok(tx.batch_execute(&statement).await?),
            Tx::Mysql(tx) => Ok(tx.query_drop(statement).await?),
        }
    }

    /// Writes a row and sends the message that announces it.
    pub(crate) async fn put(&mut self, tag: u64) -> Done<()> {
        self.write(tag).await?;
        self.send(tag).await
    }

    pub(crate) async fn write(&mut self, tag: u64) -> Done<()> {
        self.run(&row_of(tag)).await
    }

    pub(crate) async fn send(&mut self, tag: u64) -> Done<()> {
        let (own, item) = (has_own_queue(tag), [Announcement { tag }]);
        if self.means == Means::Sql {
            return self.run(&send_of(Database::of(self.url), tag)).await;
        }
        let pond = self.pond;
        match &mut self.tx {
            Tx::Unit(unit) if own => unit.send(&ORDERS, item).await?,
            Tx::Unit(unit) => unit.send(&NOTES, item).await?,
            Tx::Sqlite(tx) if own => pond.within(tx).send(&ORDERS, item)?,
            Tx::Sqlite(tx) => pond.within(tx).send(&NOTES, item)?,
            Tx::Postgres(tx) if own => pond.within(tx).send(&ORDERS, item).await?,
            Tx::Postgres(tx) => pond.within(tx).send(&NOTES, item).await?,
            Tx::Mysql(tx) if own => pond.within(tx).send(&ORDERS, item).await?,
            Tx::Mysql(tx) => pond.within(tx).send(&NOTES, item).await?,
        };
        Ok(())
    }

    /// Reads an account. What another changes from now on is too late.
    pub(crate) async fn read(&mut self, account: u64) -> Done<()> {
        self.run(&format!("select amount from torture_account where id = {account}")).await
    }

    /// Changes an account, which locks it.
    pub(crate) async fn change(&mut self, account: u64) -> Done<()> {
        self.run(&format!("update torture_account set amount = amount + 1 where id = {account}")).await
    }

    /// Locks an account, or is refused at once.
    pub(crate) async fn lock_at_once(&mut self, account: u64) -> Done<()> {
        self.run(&format!("select amount from torture_account where id = {account} for update nowait")).await
    }

    /// Opens a savepoint, writes and sends in it, and rolls it back; `drops`: without a word, where that is a way.
    pub(crate) async fn put_in_vain(&mut self, tag: u64, drops: bool) -> Done<()> {
        if let Tx::Unit(unit) = &mut self.tx {
            let statement = Database::of(self.url).dialect(&row_of(tag), self.url);
            let mut frame = unit.savepoint().await?;
            run_in(&mut frame, self.url, statement).await?;
            match has_own_queue(tag) {
                true => frame.send(&ORDERS, [Announcement { tag }]).await?,
                false => frame.send(&NOTES, [Announcement { tag }]).await?,
            };
            if drops {
                drop(frame);
            } else {
                frame.roll_back().await?;
            }
            return Ok(());
        }
        self.run("savepoint inner_part").await?;
        self.put(tag).await?;
        self.run("rollback to savepoint inner_part").await
    }

    /// Has a hook refuse the commit; `false` where there are no hooks.
    pub(crate) fn refuse(&mut self) -> bool {
        let Tx::Unit(unit) = &mut self.tx else { return false };
        let refused = || millpond::Error::new(millpond::Code::InvalidOption, "look at the whole");
        unit.before_commit(move |_| Box::pin(async move { Err(refused()) }));
        true
    }

    pub(crate) const fn is_unit(&self) -> bool {
        matches!(self.tx, Tx::Unit(_))
    }

    pub(crate) async fn commit(self) -> Done<()> {
        match self.tx {
            Tx::Unit(unit) => Ok(unit.commit().await.map(drop)?),
            Tx::Sqlite(tx) => Ok(tx.commit()?),
            Tx::Postgres(tx) => Ok(tx.commit().await?),
            Tx::Mysql(tx) => Ok(tx.commit().await?),
        }
    }

    pub(crate) async fn roll_back(self) -> Done<()> {
        match self.tx {
            Tx::Unit(unit) => unit.roll_back(),
            Tx::Sqlite(tx) => tx.rollback()?,
            Tx::Postgres(tx) => tx.rollback().await?,
            Tx::Mysql(tx) => tx.rollback().await?,
        }
        Ok(())
    }
}

async fn run_in(unit: &mut UnitOfWork, url: &str, statement: String) -> Done<()> {
    match Database::of(url) {
        Database::Sqlite => Ok(unit.sqlite(move |conn| conn.execute_batch(&statement)).await?),
        Database::Postgres => Ok(unit.postgres().await?.batch_execute(&statement).await?),
        Database::Mysql => Ok(unit.mysql().await?.query_drop(statement).await?),
    }
}

fn row_of(tag: u64) -> String {
    format!("insert into torture_order (tag) values ({tag})")
}

/// The send that any language can make.
fn send_of(database: Database, tag: u64) -> String {
    let (queue, body) = (queue_name(tag), format!("{{\"tag\": {tag}}}"));
    match database {
        Database::Sqlite => {
            format!("insert into millpond_outbox_in (queue, body) values ('{queue}', '{body}')")
        }
        Database::Postgres => format!("select millpond_send('{queue}', '{body}'::jsonb)"),
        Database::Mysql => format!("call millpond_send('{queue}', '{body}', null, @id)"),
    }
}
