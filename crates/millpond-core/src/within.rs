//! Sending in a transaction that the user opened, through the user's own driver or library.
//!
//! Three parties, each with one part:
//!
//! - The **store** knows its tables: [`Within`] turns a queue and checked messages into statements.
//! - The **adapter** knows a library: [`UserTx`] (or [`BlockingUserTx`]) binds values, runs one statement, and hands its
//!   rows back. It never begins, commits, rolls back or keeps a connection. That is all of it; an adapter for a new
//!   library is a page.
//! - This module knows the course: a savepoint, the dedup keys, the messages, and what is undone when something is
//!   refused, so that the user's transaction can go on as if nothing had been sent.
//!
//! # Writing an adapter
//!
//! One type, one method. `Driver` is a type of the adapter's own crate, so that Rust lets it implement the trait for a type
//! of its library:
//!
//! ```
//! use millpond_core::store::BoxFuture;
//! use millpond_core::within::{Dialect, Refused, Row, Shape, Statement, UserTx};
//! # struct TheirTransaction;
//! # struct TheirError;
//! # impl TheirTransaction {
//! #     async fn batch(&mut self, _: &str) -> Result<(), TheirError> { Ok(()) }
//! #     async fn query(&mut self, _: &str, _: &[millpond_core::within::Value]) -> Result<Vec<Row>, TheirError> { Ok(Vec::new()) }
//! # }
//! # fn refused(_: TheirError) -> Refused { Refused { state: None, cause: "lost".into() } }
//!
//! /// Says whose implementation it is.
//! pub enum Driver {}
//!
//! impl UserTx<Driver> for TheirTransaction {
//!     fn dialect(&self) -> Dialect {
//!         Dialect::Postgres
//!     }
//!
//!     fn run<'a>(&'a mut self, statement: &'a Statement) -> BoxFuture<'a, Result<Vec<Row>, Refused>> {
//!         Box::pin(async move {
//!             match statement.shape {
//!                 Shape::Word => self.batch(&statement.text).await.map(|()| Vec::new()),
//!                 Shape::Change | Shape::Question => self.query(&statement.text, &statement.values).await,
//!             }
//!             .map_err(refused)
//!         })
//!     }
//! }
//! ```
//!
//! Then `pond.within(&mut tx).send(&MAIL, mails).await` takes that transaction.
//!
//! Every [`Statement`] is of one of three shapes ([`Shape`]), so that a library which wants to
//! know its types when it is compiled can know them:
//!
//! - `Word`: no values, no rows. It goes through the driver's way for plain text (`batch_execute`, `query_drop`): some
//!   servers do not prepare savepoints.
//! - `Change`: values, no rows.
//! - `Question`: values, and rows of exactly two columns, `number` (a nullable BIGINT) and `word` (a nullable text).
//!
//! Values are of three types only ([`Value`]): BIGINT, text, bytes; each may be null. Placeholders are those of the
//! dialect: `$1` in Postgres, `?1` in SQLite, `?` in MySQL and MariaDB. In Postgres each has a cast, so that the server
//! infers exactly `bigint`, `text` or `bytea`.
//!
//! What the library says when it fails goes into [`Refused`], with the SQLSTATE (SQLite: the result code in decimal) if
//! it has one. An adapter that sees that no transaction is open says `25P01`, and runs nothing.

use std::collections::BTreeMap;
use std::error::Error as StdError;

use crate::error::{Code, Error, Result};
use crate::message::{Dedup, MessageId, NewMessage};
use crate::store::{BoxFuture, Frame, Queue, QueueId, Stored};

/// Which SQL a transaction speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// SQLite.
    Sqlite,
    /// Postgres.
    Postgres,
    /// MariaDB and MySQL.
    Mysql,
}

impl Dialect {
    /// As people call it.
    pub const fn name(self) -> &'static str {
        match self {
            Dialect::Sqlite => "SQLite",
            Dialect::Postgres => "Postgres",
            Dialect::Mysql => "MariaDB or MySQL",
        }
    }

    /// What opens the frame of a send; refused, and without effect, where no transaction is open.
    const fn frame(self) -> &'static [&'static str] {
        match self {
            Dialect::Sqlite | Dialect::Postgres => &["savepoint millpond_send"],
            // Without a transaction the first does nothing and says nothing; the second is refused then.
            Dialect::Mysql => &["savepoint millpond_send", "rollback to savepoint millpond_send"],
        }
    }

    /// What takes back all that was done in the frame.
    const fn undo(self) -> &'static str {
        "rollback to savepoint millpond_send"
    }

    /// What ends the frame. In MySQL nothing: the next savepoint of that name takes its place, and the end of the
    /// transaction ends it.
    const fn end(self) -> Option<&'static str> {
        match self {
            Dialect::Sqlite | Dialect::Postgres => Some("release savepoint millpond_send"),
            Dialect::Mysql => None,
        }
    }
}

/// A value of a statement. It has one of three types, and may be null.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// BIGINT.
    Int(Option<i64>),
    /// Text.
    Text(Option<String>),
    /// Bytes: `bytea`, BLOB.
    Bytes(Option<Vec<u8>>),
}

/// What a statement takes and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// No values, no rows: for the driver's way of plain text.
    Word,
    /// Values and no rows.
    Change,
    /// Values, and rows of the columns `number` and `word`.
    Question,
}

/// One statement, for an adapter to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// With the placeholders of its dialect. Few texts come again and again, so that it may be prepared.
    pub text: String,
    /// In the order of the placeholders.
    pub values: Vec<Value>,
    /// What it takes and answers.
    pub shape: Shape,
}

impl Statement {
    /// A statement without values or rows.
    pub fn word(text: impl Into<String>) -> Self {
        Self { text: text.into(), values: Vec::new(), shape: Shape::Word }
    }

    /// A statement that answers no rows.
    pub fn change(text: impl Into<String>, values: Vec<Value>) -> Self {
        Self { text: text.into(), values, shape: Shape::Change }
    }

    /// A statement that answers rows.
    pub fn question(text: impl Into<String>, values: Vec<Value>) -> Self {
        Self { text: text.into(), values, shape: Shape::Question }
    }
}

/// A row of the answer to a [`Shape::Question`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row {
    /// The column `number`, the first.
    pub number: Option<i64>,
    /// The column `word`, the second.
    pub word: Option<String>,
}

/// A statement that the user's transaction did not run.
#[derive(Debug)]
pub struct Refused {
    /// The SQLSTATE; in SQLite the result code in decimal. `None`: the library has none, as when the connection is lost.
    pub state: Option<String>,
    /// What the library said.
    pub cause: Box<dyn StdError + Send + Sync>,
}

/// An open transaction of a library that is asynchronous.
///
/// An adapter owns nothing: it borrows the transaction for one send. It must not begin, commit or roll back.
///
/// `Of` is a type of the adapter's crate; see [above](self).
pub trait UserTx<Of>: Send {
    /// The database that the transaction is in.
    fn dialect(&self) -> Dialect;

    /// Whether the library, or the type by itself, says that a transaction is open: then no savepoint is needed to find
    /// out, and a send of one statement goes without. In MySQL a statement of the user may have committed it, so there it
    /// is never sure.
    fn is_surely_open(&mut self) -> bool {
        false
    }

    /// Runs one statement in the transaction, and answers its rows; none unless it is a [`Shape::Question`].
    fn run<'a>(&'a mut self, statement: &'a Statement) -> BoxFuture<'a, Result<Vec<Row>, Refused>>;
}

/// The same for a library that blocks.
pub trait BlockingUserTx<Of> {
    /// See [`UserTx::dialect`].
    fn dialect(&self) -> Dialect;

    /// See [`UserTx::is_surely_open`].
    fn is_surely_open(&mut self) -> bool {
        false
    }

    /// See [`UserTx::run`].
    ///
    /// # Errors
    ///
    /// What the library says.
    fn run(&mut self, statement: &Statement) -> Result<Vec<Row>, Refused>;
}

/// A dedup key that a message of a send is to hold.
#[derive(Debug, Clone, Copy)]
pub struct Hold<'m> {
    /// The message.
    pub message: &'m NewMessage,
    /// Its key.
    pub dedup: &'m Dedup,
}

/// What a store knows of its tables, for a send in somebody else's transaction.
pub trait Within: Send + Sync {
    /// Whose SQL it is.
    fn dialect(&self) -> Dialect;

    /// Asks for a queue by its name.
    fn find_queue(&self, name: &str) -> Statement;

    /// The queue in the answer.
    ///
    /// # Errors
    ///
    /// `internal` when its settings cannot be read.
    fn found_queue(&self, name: &str, rows: Vec<Row>) -> Result<Option<Queue>>;

    /// Asks whether a later release has migrated: there is a row then. `None`: the other statements refuse by themselves.
    fn later_release(&self) -> Option<Statement>;

    /// Holds a dedup key, unless it is held. The last statement asks who holds it: `word` is the message's id, `number`
    /// the checksum of its body.
    fn hold(&self, queue: QueueId, hold: Hold<'_>) -> Vec<Statement>;

    /// Writes messages to the outbox, in order. None of them is there.
    fn put(&self, queue: QueueId, messages: &[&NewMessage]) -> Vec<Statement>;

    /// The checksum of a body, as [`Within::hold`] answers it.
    fn checksum(&self, body: &[u8]) -> i64;
}

/// The queue of this name, asked for in the user's transaction.
///
/// # Errors
///
/// `unsupported-store` when the transaction is in a database of another kind; what the library says.
pub async fn find_queue<T: UserTx<Of> + ?Sized, Of>(
    tx: &mut T,
    store: &dyn Within,
    name: &str,
) -> Result<Option<Queue>> {
    let doing = sending(name);
    same_dialect(store.dialect(), tx.dialect(), &doing)?;
    let rows = tx.run(&store.find_queue(name)).await;
    store.found_queue(name, rows.map_err(|refused| refused.into_error(store.dialect(), &doing))?)
}

/// The same in a transaction that blocks.
///
/// # Errors
///
/// As for [`find_queue`].
pub fn find_queue_blocking<T: BlockingUserTx<Of> + ?Sized, Of>(
    tx: &mut T,
    store: &dyn Within,
    name: &str,
) -> Result<Option<Queue>> {
    let doing = sending(name);
    same_dialect(store.dialect(), tx.dialect(), &doing)?;
    let rows = tx.run(&store.find_queue(name));
    store.found_queue(name, rows.map_err(|refused| refused.into_error(store.dialect(), &doing))?)
}

/// Writes checked messages into the user's transaction: all of them, or none and the transaction as it was. One statement
/// needs no savepoint for that; but in Postgres one that the server refuses ends the transaction.
///
/// # Errors
///
/// `dedup-conflict`, with the index. `unsupported-store`: the transaction is in a database of another kind, or none is
/// open. `schema-older`, `schema-newer`, `store-unreachable` (no rights), `store-unavailable` (a deadlock, a lost
/// connection: the transaction is over), `statement-failed`.
pub async fn send<T: UserTx<Of> + ?Sized, Of>(
    tx: &mut T,
    store: &dyn Within,
    queue: &Queue,
    messages: &[NewMessage],
) -> Result<Vec<Stored>> {
    let (dialect, doing) = (store.dialect(), sending(&queue.name));
    same_dialect(dialect, tx.dialect(), &doing)?;
    if tx.is_surely_open()
        && let Some(statement) = alone(store, queue.id, messages)
    {
        let ran = tx.run(&statement).await;
        ran.map_err(|refused| refused.into_error(dialect, &doing))?;
        return Ok(vec![Stored::New; messages.len()]);
    }
    for word in dialect.frame() {
        let opened = tx.run(&Statement::word(*word)).await;
        opened.map_err(|refused| refused.into_error(dialect, &doing))?;
    }
    let mut course = Course::new(store, queue.id, messages);
    let sent = loop {
        match course.next() {
            Ok(Some(statement)) => match tx.run(&statement).await {
                Ok(rows) => course.answered(rows),
                Err(refused) => break Err(refused.into_error(dialect, &doing)),
            },
            Ok(None) => break Ok(course.stored),
            Err(error) => break Err(error),
        }
    };
    // Where undoing fails too, the transaction is over, and the first error says why.
    if sent.is_err() && tx.run(&Statement::word(dialect.undo())).await.is_err() {
        return sent;
    }
    let Some(end) = dialect.end() else { return sent };
    let ended = tx.run(&Statement::word(end)).await;
    ended.map_err(|refused| refused.into_error(dialect, &doing)).and(sent)
}

/// The same in a transaction that blocks.
///
/// # Errors
///
/// As for [`send`].
pub fn send_blocking<T: BlockingUserTx<Of> + ?Sized, Of>(
    tx: &mut T,
    store: &dyn Within,
    queue: &Queue,
    messages: &[NewMessage],
) -> Result<Vec<Stored>> {
    let (dialect, doing) = (store.dialect(), sending(&queue.name));
    same_dialect(dialect, tx.dialect(), &doing)?;
    if tx.is_surely_open()
        && let Some(statement) = alone(store, queue.id, messages)
    {
        tx.run(&statement).map_err(|refused| refused.into_error(dialect, &doing))?;
        return Ok(vec![Stored::New; messages.len()]);
    }
    for word in dialect.frame() {
        tx.run(&Statement::word(*word)).map_err(|refused| refused.into_error(dialect, &doing))?;
    }
    let mut course = Course::new(store, queue.id, messages);
    let sent = loop {
        match course.next() {
            Ok(Some(statement)) => match tx.run(&statement) {
                Ok(rows) => course.answered(rows),
                Err(refused) => break Err(refused.into_error(dialect, &doing)),
            },
            Ok(None) => break Ok(course.stored),
            Err(error) => break Err(error),
        }
    };
    if sent.is_err() && tx.run(&Statement::word(dialect.undo())).is_err() {
        return sent;
    }
    let Some(end) = dialect.end() else { return sent };
    tx.run(&Statement::word(end)).map_err(|refused| refused.into_error(dialect, &doing)).and(sent)
}

/// The only statement of a send, if it has one: the database does it wholly or not at all, without a frame.
fn alone(store: &dyn Within, queue: QueueId, messages: &[NewMessage]) -> Option<Statement> {
    let is_one_page = PAGE_ROWS.contains(&messages.len());
    let has_key = messages.iter().any(|message| message.dedup.is_some());
    if !is_one_page || has_key || store.later_release().is_some() {
        return None;
    }
    let mut statements = store.put(queue, &messages.iter().collect::<Vec<_>>());
    if statements.len() == 1 { statements.pop() } else { None }
}

/// What [`adopt`] and [`commit`] were tried for.
pub const ADOPT: &str = "adopt a transaction";

/// Where an adopted transaction begins to be ours: if it is gone, so is what was done since.
const UNIT: &str = "millpond_unit";

/// Takes over an open transaction: refused, and without effect, where none is open.
///
/// # Errors
///
/// `unsupported-store` when the transaction is in a database of another kind, or none is open; what the library says.
pub async fn adopt<T: UserTx<Of> + ?Sized, Of>(tx: &mut T, store: Dialect) -> Result<()> {
    same_dialect(store, tx.dialect(), ADOPT)?;
    step(tx, store, format!("savepoint {UNIT}"), ADOPT).await?;
    if store == Dialect::Mysql {
        // Without a transaction the savepoint did nothing there, and said nothing.
        step(tx, store, format!("rollback to savepoint {UNIT}"), ADOPT).await?;
    }
    Ok(())
}

/// Opens or ends a frame in an adopted transaction.
///
/// # Errors
///
/// What the library says.
pub async fn frame<T: UserTx<Of> + ?Sized, Of>(tx: &mut T, store: Dialect, frame: Frame) -> Result<()> {
    for statement in frame.statements() {
        step(tx, store, statement, "set a savepoint in the transaction").await?;
    }
    Ok(())
}

/// Commits an adopted transaction.
///
/// # Errors
///
/// `unknown-outcome`: the connection was lost on the way, and nobody knows. Any other: nothing was committed, because the
/// transaction was over before (a statement had failed, or ended it), or because the database refused.
pub async fn commit<T: UserTx<Of> + ?Sized, Of>(tx: &mut T, store: Dialect) -> Result<()> {
    let doing = "commit the transaction";
    // A server that has given a transaction up answers a commit with a rollback, and calls that a success.
    let whole = tx.run(&Statement::word(format!("release savepoint {UNIT}"))).await;
    whole.map_err(|refused| {
        let error = refused.into_error(store, doing);
        if error.code() == Code::UnsupportedStore {
            return Error::new(Code::StatementFailed, doing).because("one of its statements ended it");
        }
        error
    })?;
    let committed = tx.run(&Statement::word("commit")).await.map(drop);
    committed.map_err(|refused| {
        if commit_is_unknown(store, refused.state.as_deref()) {
            return Error::new(Code::UnknownOutcome, doing).because(refused.cause);
        }
        refused.into_error(store, doing)
    })
}

async fn step<T: UserTx<Of> + ?Sized, Of>(
    tx: &mut T,
    store: Dialect,
    statement: String,
    doing: &str,
) -> Result<()> {
    let ran = tx.run(&Statement::word(statement)).await;
    ran.map(drop).map_err(|refused| refused.into_error(store, doing))
}

/// Whether nobody knows what became of a commit that ended with this state.
fn commit_is_unknown(dialect: Dialect, state: Option<&str>) -> bool {
    match (dialect, state) {
        (_, None) => true,
        // An error of the disk: nobody knows what a restart will find.
        (Dialect::Sqlite, Some(state)) => state.parse::<i32>().is_ok_and(|code| code & 0xff == 10),
        // The connection, the server's end, an answer that did not come; and MariaDB's word for all else.
        (_, Some(state)) => {
            state == "40003" || ["08", "57", "58", "HY"].iter().any(|class| state.starts_with(class))
        }
    }
}

/// The statements of one send, each when the one before is answered: the messages, then their dedup keys, in the order of
/// the keys, so that two senders never wait for each other crosswise. If keys are held by others, all of it is undone and
/// done again without those messages.
///
/// In this order a send that its caller gives up half-way leaves, if the caller commits all the same, a message too many,
/// and never a key without its message: whatever is sent with that key would be taken for sent.
struct Course<'s> {
    store: &'s dyn Within,
    queue: QueueId,
    messages: &'s [NewMessage],
    stored: Vec<Stored>,
    /// The places of messages whose key is to be held, the next at the end.
    keyed: Vec<usize>,
    /// What is to be run next, the next at the end.
    ready: Vec<Statement>,
    /// The place of the message whose key is being held.
    holding: Option<usize>,
    answer: Vec<Row>,
    conflict: Option<(usize, Error)>,
    step: Step,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Begin,
    /// Whether a later release has migrated was asked.
    Asked,
    Put,
    /// `again`: a key was held by another message.
    Hold {
        again: bool,
    },
}

impl<'s> Course<'s> {
    fn new(store: &'s dyn Within, queue: QueueId, messages: &'s [NewMessage]) -> Self {
        Self {
            store,
            queue,
            messages,
            stored: vec![Stored::New; messages.len()],
            keyed: Vec::new(),
            ready: Vec::new(),
            holding: None,
            answer: Vec::new(),
            conflict: None,
            step: Step::Begin,
        }
    }

    /// The next statement; `None`: all were run.
    fn next(&mut self) -> Result<Option<Statement>> {
        loop {
            if let Some(statement) = self.ready.pop() {
                return Ok(Some(statement));
            }
            match self.step {
                Step::Begin => {
                    self.step = Step::Asked;
                    self.ready.extend(self.store.later_release());
                }
                Step::Asked => {
                    if let Some(later) = self.answer.first() {
                        return Err(schema_newer(later.number.unwrap_or_default()));
                    }
                    self.step = Step::Put;
                }
                Step::Put => {
                    self.put();
                    self.step = Step::Hold { again: false };
                }
                Step::Hold { again } => {
                    let is_other = match self.holding.take() {
                        Some(place) => self.held(place)?,
                        None => false,
                    };
                    self.step = Step::Hold { again: again || is_other };
                    if let Some(place) = self.keyed.pop() {
                        self.hold(place);
                    } else if let Some((_, error)) = self.conflict.take() {
                        return Err(error);
                    } else if again || is_other {
                        self.step = Step::Put;
                        return Ok(Some(Statement::word(self.store.dialect().undo())));
                    } else {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Everything that is not there yet, and which keys it has.
    fn put(&mut self) {
        let is_new = |place: &usize| self.stored[*place] == Stored::New;
        let new: Vec<usize> = (0..self.messages.len()).filter(is_new).collect();
        let key = |place: &usize| self.messages[*place].dedup.as_ref().map(|dedup| dedup.key.as_str());
        let mut keyed: Vec<usize> = new.iter().copied().filter(|place| key(place).is_some()).collect();
        // A stable order: of equal keys the first of the call holds it.
        keyed.sort_by(|one, other| key(one).cmp(&key(other)));
        keyed.reverse();
        let new: Vec<&NewMessage> = new.into_iter().map(|place| &self.messages[place]).collect();
        self.keyed = keyed;
        if !new.is_empty() {
            self.ready = self.store.put(self.queue, &new);
            self.ready.reverse();
        }
    }

    fn hold(&mut self, place: usize) {
        let message = &self.messages[place];
        if let Some(dedup) = &message.dedup {
            self.ready = self.store.hold(self.queue, Hold { message, dedup });
            self.ready.reverse();
            self.holding = Some(place);
        }
    }

    fn answered(&mut self, rows: Vec<Row>) {
        self.answer = rows;
    }

    /// Notes who holds the key of this message; whether it is another one.
    fn held(&mut self, place: usize) -> Result<bool> {
        let message = &self.messages[place];
        let row = std::mem::take(&mut self.answer).into_iter().next().unwrap_or_default();
        let holder = row.word.and_then(|word| uuid::Uuid::parse_str(&word).ok());
        let (Some(holder), Some(checksum)) = (holder, row.number) else {
            let why = "the adapter did not hand on who holds the dedup key";
            return Err(Error::new(Code::Internal, "send a message with a dedup key").because(why).at(place));
        };
        if holder == message.id.0 {
            return Ok(false);
        }
        self.stored[place] = Stored::Duplicate { of: MessageId(holder) };
        let is_first = self.conflict.as_ref().is_none_or(|(first, _)| place < *first);
        if checksum != self.store.checksum(&message.body) && is_first {
            let key = message.dedup.as_ref().map_or("", |dedup| dedup.key.as_str());
            let why = format!("key `{key}` is held by message {holder} with another body");
            let refused = Error::new(Code::DedupConflict, "send a message with a dedup key");
            self.conflict = Some((place, refused.because(why).at(place)));
        }
        Ok(true)
    }
}

fn schema_newer(number: i64) -> Error {
    let why = format!("another process brought it to migration {number}, which this release does not know");
    Error::new(Code::SchemaNewer, "use the store").because(why)
}

/// Cuts messages into statements of few sizes, so that few texts come again and again, and of bounded length.
pub fn pages<'s, 'm>(messages: &'s [&'m NewMessage]) -> Vec<&'s [&'m NewMessage]> {
    let (mut pages, mut rest) = (Vec::new(), messages);
    while !rest.is_empty() {
        let mut bytes = 0_usize;
        let fits = |message: &&&NewMessage| {
            bytes = bytes.saturating_add(message.body.len());
            bytes <= PAGE_BYTES_MAX
        };
        let fitting = rest.iter().take_while(fits).count().max(1);
        let rows = PAGE_ROWS.into_iter().find(|rows| *rows <= fitting).unwrap_or(1);
        let (page, others) = rest.split_at(rows);
        pages.push(page);
        rest = others;
    }
    pages
}

/// Rows of one statement, the most first.
const PAGE_ROWS: [usize; 4] = [64, 16, 4, 1];

/// Bodies of one statement with several rows.
const PAGE_BYTES_MAX: usize = 1024 * 1024;

/// How many messages of each kind, for the counters; the queue's own kind is empty.
pub fn by_kind<'m>(messages: &[&'m NewMessage]) -> BTreeMap<&'m str, i64> {
    let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
    for message in messages {
        *counts.entry(message.kind.as_deref().unwrap_or("")).or_default() += 1;
    }
    counts
}

fn sending(queue: &str) -> String {
    format!("send to queue `{queue}` in your transaction")
}

fn same_dialect(store: Dialect, tx: Dialect, doing: &str) -> Result<()> {
    if store == tx {
        return Ok(());
    }
    let why = format!(
        "the transaction is in {} and the store in {}; use a transaction in the store's own database",
        tx.name(),
        store.name()
    );
    Err(Error::new(Code::UnsupportedStore, doing).because(why))
}

impl Refused {
    /// The public error of a send.
    fn into_error(self, dialect: Dialect, doing: &str) -> Error {
        let Self { state, cause } = self;
        let code = match (dialect, state.as_deref()) {
            // The connection was lost, and the transaction with it.
            (_, None) => Code::StoreUnavailable,
            (Dialect::Sqlite, Some(state)) => of_sqlite(state, &*cause),
            (_, Some(state)) => of_sqlstate(state, &*cause),
        };
        Error::new(code, doing).because(cause)
    }
}

fn of_sqlite(state: &str, cause: &dyn StdError) -> Code {
    if state == "25P01" {
        return Code::UnsupportedStore;
    }
    match state.parse::<i32>().map(|code| code & 0xff) {
        Ok(5 | 6) => Code::StoreUnavailable,
        Ok(13) => Code::StorageFull,
        Ok(8 | 14 | 23) => Code::StoreUnreachable,
        Ok(1) if cause.to_string().contains("no such table") => Code::SchemaOlder,
        _ => Code::StatementFailed,
    }
}

fn of_sqlstate(state: &str, cause: &dyn StdError) -> Code {
    match state {
        "MP001" => Code::SchemaNewer,
        // A table or function that is missing: no store, or an older one.
        "42P01" | "42883" | "3F000" | "42S02" | "42S22" => Code::SchemaOlder,
        // No rights.
        "42501" => Code::StoreUnreachable,
        "53100" => Code::StorageFull,
        // No transaction is open (Postgres; MySQL's has a word of its own, of which the state says nothing).
        "25P01" => Code::UnsupportedStore,
        "42000" if cause.to_string().contains("SAVEPOINT") => Code::UnsupportedStore,
        // The subselect of `still_ours`.
        "21000" => Code::SchemaNewer,
        state if ["40", "53", "55", "57", "08"].iter().any(|class| state.starts_with(class)) => {
            Code::StoreUnavailable
        }
        _ => Code::StatementFailed,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use super::*;
    use crate::queue::QueueSettings;

    /// Its statements name what they do, and a transaction over it plays the database.
    struct FakeDialect;

    impl Within for FakeDialect {
        fn dialect(&self) -> Dialect {
            Dialect::Sqlite
        }

        fn find_queue(&self, name: &str) -> Statement {
            Statement::question("find", vec![Value::Text(Some(name.to_owned()))])
        }

        fn found_queue(&self, name: &str, rows: Vec<Row>) -> Result<Option<Queue>> {
            let found = |row: Row| Queue {
                id: QueueId(row.number.unwrap_or_default()),
                name: name.to_owned(),
                settings: QueueSettings::DEFAULT,
            };
            Ok(rows.into_iter().next().map(found))
        }

        fn later_release(&self) -> Option<Statement> {
            None
        }

        fn hold(&self, _: QueueId, hold: Hold<'_>) -> Vec<Statement> {
            let Hold { message, dedup } = hold;
            let text = |text: String| Value::Text(Some(text));
            let values = vec![
                text(dedup.key.clone()),
                text(message.id.to_string()),
                Value::Int(Some(self.checksum(&message.body))),
            ];
            vec![Statement::question("hold", values)]
        }

        fn put(&self, _: QueueId, messages: &[&NewMessage]) -> Vec<Statement> {
            let bodies = messages.iter().map(|message| Value::Bytes(Some(message.body.clone())));
            vec![Statement::change("put", bodies.collect())]
        }

        fn checksum(&self, body: &[u8]) -> i64 {
            body.iter().map(|byte| i64::from(*byte)).sum()
        }
    }

    #[derive(Default)]
    struct FakeTx {
        log: Vec<String>,
        held: HashMap<String, (String, i64)>,
        /// The statement that fails, with its state.
        fails: Option<(&'static str, Option<&'static str>)>,
        is_surely_open: bool,
    }

    impl BlockingUserTx<FakeDialect> for FakeTx {
        fn dialect(&self) -> Dialect {
            Dialect::Sqlite
        }

        fn is_surely_open(&mut self) -> bool {
            self.is_surely_open
        }

        fn run(&mut self, statement: &Statement) -> Result<Vec<Row>, Refused> {
            self.log.push(statement.text.replace(" savepoint millpond_send", ""));
            if let Some((text, state)) = self.fails
                && text == statement.text
            {
                return Err(Refused { state: state.map(str::to_owned), cause: "it was to fail".into() });
            }
            let [Value::Text(Some(key)), Value::Text(Some(id)), Value::Int(Some(sum))] =
                &statement.values[..]
            else {
                return Ok(Vec::new());
            };
            let (holder, sum) = self.held.entry(key.clone()).or_insert((id.clone(), *sum)).clone();
            Ok(vec![Row { number: Some(sum), word: Some(holder) }])
        }
    }

    fn message(number: u128, body: &str, key: Option<&str>) -> NewMessage {
        NewMessage {
            id: MessageId(uuid::Uuid::from_u128(number)),
            kind: None,
            key: None,
            headers: BTreeMap::new(),
            content_type: None,
            body: body.as_bytes().to_vec(),
            priority: 2,
            due: None,
            attempts_max: None,
            retry_until: None,
            dedup: key.map(|key| Dedup { key: key.to_owned(), window: Duration::from_secs(9) }),
        }
    }

    fn queue() -> Queue {
        Queue { id: QueueId(1), name: "mail".to_owned(), settings: QueueSettings::DEFAULT }
    }

    fn run(tx: &mut FakeTx, messages: &[NewMessage]) -> Result<Vec<Stored>> {
        send_blocking(tx, &FakeDialect, &queue(), messages)
    }

    #[test]
    fn keys_are_held_in_order_behind_their_messages_and_a_duplicate_is_put_no_second_time() {
        let mut tx = FakeTx::default();
        let messages = [message(1, "b", Some("z")), message(2, "a", Some("k")), message(3, "a", Some("k"))];
        let stored = run(&mut tx, &messages).unwrap();
        assert_eq!(stored, [Stored::New, Stored::New, Stored::Duplicate { of: messages[1].id }]);
        assert_eq!(
            tx.log,
            [
                &["savepoint millpond_send", "put", "hold", "hold", "hold", "rollback to"][..],
                &["put", "hold", "hold", "release"]
            ]
            .concat()
        );
    }

    #[test]
    fn a_conflict_undoes_the_frame_and_names_the_first_item() {
        let mut tx = FakeTx::default();
        run(&mut tx, &[message(9, "other", Some("k"))]).unwrap();
        tx.log.clear();
        let messages = [message(1, "b", None), message(2, "a", Some("k")), message(3, "c", Some("k"))];
        let error = run(&mut tx, &messages).unwrap_err();
        assert_eq!((error.code(), error.index()), (Code::DedupConflict, Some(1)));
        assert_eq!(tx.log, ["savepoint millpond_send", "put", "hold", "hold", "rollback to", "release"]);
    }

    #[test]
    fn a_statement_that_fails_undoes_the_frame() {
        let cases = [
            (Some("1"), Code::StatementFailed),
            (Some("517"), Code::StoreUnavailable),
            (Some("13"), Code::StorageFull),
            (None, Code::StoreUnavailable),
        ];
        for (state, code) in cases {
            let mut tx = FakeTx { fails: Some(("put", state)), ..FakeTx::default() };
            assert_eq!(run(&mut tx, &[message(1, "b", None)]).unwrap_err().code(), code, "{state:?}");
            assert_eq!(tx.log, ["savepoint millpond_send", "put", "rollback to", "release"]);
        }
    }

    #[test]
    fn one_statement_needs_no_frame_where_a_transaction_is_surely_open() {
        let (plain, keyed) = (message(1, "b", None), message(2, "a", Some("k")));
        let framed = ["savepoint millpond_send", "put", "release"];
        let framed_with_key = ["savepoint millpond_send", "put", "hold", "release"];
        for (is_surely_open, message, expected) in
            [(true, &plain, &["put"][..]), (false, &plain, &framed[..]), (true, &keyed, &framed_with_key[..])]
        {
            let mut tx = FakeTx { is_surely_open, ..FakeTx::default() };
            assert_eq!(run(&mut tx, std::slice::from_ref(message)).unwrap(), [Stored::New]);
            assert_eq!(tx.log, expected);
        }
        let mut tx =
            FakeTx { is_surely_open: true, fails: Some(("put", Some("MP001"))), ..FakeTx::default() };
        run(&mut tx, &[plain]).unwrap_err();
        assert_eq!(tx.log, ["put"]);
    }

    #[test]
    fn pages_have_few_sizes_and_a_limit_of_bytes() {
        let small = message(1, "b", None);
        let large = message(2, &"b".repeat(700_000), None);
        let sizes =
            |messages: &[&NewMessage]| pages(messages).iter().map(|page| page.len()).collect::<Vec<_>>();
        assert_eq!(sizes(&[&small; 99]), [64, 16, 16, 1, 1, 1]);
        assert_eq!(sizes(&[&large; 3]), [1, 1, 1]);
        assert_eq!(sizes(&[]), [0; 0]);
    }

    #[test]
    fn a_frame_that_does_not_open_sends_nothing() {
        let mut tx = FakeTx { fails: Some(("savepoint millpond_send", Some("1"))), ..FakeTx::default() };
        run(&mut tx, &[message(1, "b", None)]).unwrap_err();
        assert_eq!(tx.log, ["savepoint millpond_send"]);
    }

    #[test]
    fn a_transaction_of_another_database_is_refused_before_it_is_touched() {
        assert_eq!(same_dialect(Dialect::Sqlite, Dialect::Sqlite, "send").ok(), Some(()));
        let error = same_dialect(Dialect::Postgres, Dialect::Sqlite, "send").unwrap_err();
        assert_eq!(error.code(), Code::UnsupportedStore);
        assert!(error.causes().contains("in SQLite and the store in Postgres"), "{}", error.causes());
    }

    #[test]
    fn states_say_what_to_do() {
        let cause = |text: &str| Box::<dyn StdError + Send + Sync>::from(text.to_owned());
        for (state, text, code) in [
            ("25P01", "SAVEPOINT can only be used in transaction blocks", Code::UnsupportedStore),
            ("42000", "SAVEPOINT millpond_send does not exist", Code::UnsupportedStore),
            ("42000", "you have an error in your SQL syntax", Code::StatementFailed),
            ("40001", "deadlock", Code::StoreUnavailable),
            ("42P01", "relation does not exist", Code::SchemaOlder),
            ("MP001", "a later release", Code::SchemaNewer),
            ("25P02", "current transaction is aborted", Code::StatementFailed),
        ] {
            assert_eq!(of_sqlstate(state, &*cause(text)), code, "{state} {text}");
        }
    }

    #[test]
    fn a_commit_is_unknown_when_its_answer_may_have_been_lost() {
        let check = |dialect, state, expected| {
            assert_eq!(commit_is_unknown(dialect, state), expected, "{dialect:?} {state:?}");
        };
        check(Dialect::Postgres, None, true);
        check(Dialect::Postgres, Some("08006"), true);
        check(Dialect::Postgres, Some("57P01"), true);
        check(Dialect::Postgres, Some("40001"), false);
        check(Dialect::Postgres, Some("23505"), false);
        check(Dialect::Mysql, Some("HY000"), true);
        check(Dialect::Mysql, Some("40001"), false);
        check(Dialect::Sqlite, Some("10"), true);
        check(Dialect::Sqlite, Some("1034"), true);
        check(Dialect::Sqlite, Some("5"), false);
    }
}
