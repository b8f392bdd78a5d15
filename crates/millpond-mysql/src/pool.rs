//! The connections of one thread of the store.
//!
//! A connection is *lent* to one call at a time. It comes back *idle* if the call left it open and in no transaction;
//! in any other state it is closed, and the server rolls back what was open in it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use millpond_core::error::{Code, Error};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::connection::{Connection, Target};
use crate::error::{Fault, Tried};

/// How long a call waits for a connection when all are lent.
const CONNECTION_WAIT: Duration = Duration::from_secs(8);

/// How long an idle connection is believed to be open.
const TRUSTED: Duration = Duration::from_secs(2);

/// Connections to one server.
pub(crate) struct Pool {
    target: Arc<Target>,
    /// With the instant since when.
    idle: Mutex<Vec<(Instant, Connection)>>,
    room: Arc<Semaphore>,
    connections_max: usize,
}

/// A connection for one call.
pub(crate) struct Lent {
    /// `None` once it was given back.
    connection: Option<Connection>,
    pool: Arc<Pool>,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    pub(crate) fn new(target: Arc<Target>, connections_max: usize) -> Self {
        let room = Arc::new(Semaphore::new(connections_max));
        Self { target, idle: Mutex::default(), room, connections_max }
    }

    /// Adds a connection that is open already.
    pub(crate) fn add(&self, connection: Connection) {
        if connection.is_idle() {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push((Instant::now(), connection));
        }
    }

    /// A connection: an idle one, or a new one if there is room.
    pub(crate) async fn lend(self: &Arc<Self>) -> Tried<Lent> {
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
            None => Connection::open(&self.target).await.map_err(for_now)?,
        };
        Ok(Lent { connection: Some(connection), pool: Arc::clone(self), _permit: permit })
    }

    /// Closes what is idle.
    pub(crate) fn clear(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// One that is idle and open. The driver does not hear of an end before it is spoken to, so one that was idle for
    /// a while is asked; the others of that age are gone with it.
    async fn living(&self) -> Option<Connection> {
        loop {
            let (since, connection) = self.idle()?;
            if since.elapsed() < TRUSTED || connection.is_alive().await {
                return Some(connection);
            }
        }
    }

    /// The one that came back last, so that the others may be closed by whoever closes idle ones.
    fn idle(&self) -> Option<(Instant, Connection)> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

/// A store that was open is away for a while: what keeps a program from starting is no reason to end one that runs.
fn for_now(fault: Fault) -> Fault {
    match fault {
        Fault::Core(error) if error.code() == Code::StoreUnreachable => {
            Error::new(Code::StoreUnavailable, error.doing()).because(error.causes()).into()
        }
        other => other,
    }
}

impl Lent {
    /// The connection.
    pub(crate) fn get(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("it is lent until it is dropped")
    }

    /// The connection, to read from.
    pub(crate) fn peek(&self) -> &Connection {
        self.connection.as_ref().expect("it is lent until it is dropped")
    }

    /// Gives it back; the pool keeps it if it is idle.
    pub(crate) fn give_back(mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.add(connection);
        }
    }
}
