//! The connections of one thread of a store.
//!
//! A connection is *lent* to one call at a time. It comes back *idle* if the call left it open and in no transaction;
//! in any other state it is closed, and the server rolls back what was open in it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use millpond_core::error::{Code, Error};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::fault::Fault;

/// How long a call waits for a connection when all are lent.
const CONNECTION_WAIT: Duration = Duration::from_secs(8);

/// How long an idle connection is believed to be open.
const TRUSTED: Duration = Duration::from_secs(2);

/// A connection that a pool can keep. Dropping it closes it.
pub trait Pooled: Sized + Send + 'static {
    /// What every connection of a store is made from.
    type Target: Send + Sync + 'static;

    /// What may go wrong.
    type Fault: Fault;

    /// Opens one for use.
    fn open_for_use(target: &Arc<Self::Target>) -> impl Future<Output = Result<Self, Self::Fault>>;

    /// Whether somebody else may use it: it is open, as far as is known, and in no transaction.
    fn is_idle(&self) -> bool;

    /// Whether the server answers on it; asked of one that was idle for a while. A driver that hears of an end by itself
    /// need not ask.
    fn is_alive(&self) -> impl Future<Output = bool> {
        std::future::ready(true)
    }

    /// What a call waits after so many deadlocks. Default: nothing.
    fn after_deadlock(_tries: u32) -> impl Future<Output = ()> {
        std::future::ready(())
    }
}

/// Connections to one server.
pub struct Pool<C: Pooled> {
    target: Arc<C::Target>,
    /// With the instant since when.
    idle: Mutex<Vec<(Instant, C)>>,
    room: Arc<Semaphore>,
    connections_max: usize,
}

/// A connection for one call.
pub struct Lent<C: Pooled> {
    /// `None` once it was given back.
    connection: Option<C>,
    pool: Arc<Pool<C>>,
    _permit: OwnedSemaphorePermit,
}

impl<C: Pooled> Pool<C> {
    /// An empty one.
    pub fn new(target: Arc<C::Target>, connections_max: usize) -> Self {
        let room = Arc::new(Semaphore::new(connections_max));
        Self { target, idle: Mutex::default(), room, connections_max }
    }

    /// Adds a connection that is open already.
    pub fn add(&self, connection: C) {
        if connection.is_idle() {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push((Instant::now(), connection));
        }
    }

    /// A connection: an idle one, or a new one if there is room.
    ///
    /// # Errors
    ///
    /// `store-unavailable` when all are lent for too long, or none can be opened for now.
    pub async fn lend(self: &Arc<Self>) -> Result<Lent<C>, C::Fault> {
        let room = Arc::clone(&self.room).acquire_owned();
        let Ok(permit) = tokio::time::timeout(CONNECTION_WAIT, room).await else {
            let why = format!(
                "all {} connections were busy for {CONNECTION_WAIT:?}: raise `?connections=` in the URL",
                self.connections_max
            );
            return Err(Error::new(Code::StoreUnavailable, "take a connection").because(why).into());
        };
        let permit = permit.expect("the semaphore is never closed");
        let connection = match self.living().await {
            Some(connection) => connection,
            None => C::open_for_use(&self.target).await.map_err(for_now)?,
        };
        Ok(Lent { connection: Some(connection), pool: Arc::clone(self), _permit: permit })
    }

    /// Closes what is idle.
    pub fn clear(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// One that is idle and open. A driver may not hear of an end before it is spoken to, so one that was idle for a
    /// while is asked; the others of that age are gone with it.
    async fn living(&self) -> Option<C> {
        loop {
            let (since, connection) = self.idle()?;
            if since.elapsed() < TRUSTED || connection.is_alive().await {
                return Some(connection);
            }
        }
    }

    /// The one that came back last, so that the others may be closed by whoever closes idle ones.
    fn idle(&self) -> Option<(Instant, C)> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(_, connection)| connection.is_idle());
        idle.pop()
    }
}

/// A store that was open is away for a while: what keeps a program from starting is no reason to end one that runs.
fn for_now<F: Fault>(fault: F) -> F {
    match fault.into_ours() {
        Ok(error) if error.code() == Code::StoreUnreachable => {
            Error::new(Code::StoreUnavailable, error.doing()).because(error.causes()).into()
        }
        Ok(error) => error.into(),
        Err(fault) => fault,
    }
}

impl<C: Pooled> Lent<C> {
    /// The connection.
    pub fn get(&mut self) -> &mut C {
        self.connection.as_mut().expect("it is lent until it is dropped")
    }

    /// The connection, to read from.
    pub fn peek(&self) -> &C {
        self.connection.as_ref().expect("it is lent until it is dropped")
    }

    /// Gives it back; the pool keeps it if it is idle.
    pub fn give_back(mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.add(connection);
        }
    }
}
