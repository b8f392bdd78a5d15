//! The connections of one thread of the store.
//!
//! A connection is *lent* to one call at a time. It comes back *idle* if the call left it open and in no transaction;
//! in any other state it is closed, and the server rolls back what was open in it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millpond_core::error::{Code, Error};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::connection::{Connection, Target};
use crate::error::{Fault, Tried};

/// How long a call waits for a connection when all are lent.
const CONNECTION_WAIT: Duration = Duration::from_secs(8);

/// Connections to one server.
pub(crate) struct Pool {
    target: Arc<Target>,
    idle: Mutex<Vec<Connection>>,
    room: Arc<Semaphore>,
    connections_max: usize,
    /// A proxy between gives each transaction another connection, so nothing is set that lasts longer.
    shared: bool,
}

/// A connection for one call.
pub(crate) struct Lent {
    /// `None` once it was given back.
    connection: Option<Connection>,
    pool: Arc<Pool>,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    pub(crate) fn new(target: Arc<Target>, connections_max: usize, shared: bool) -> Self {
        let room = Arc::new(Semaphore::new(connections_max));
        Self { target, idle: Mutex::default(), room, connections_max, shared }
    }

    /// Adds a connection that is open already.
    pub(crate) fn add(&self, connection: Connection) {
        if connection.is_idle() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
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
        let connection = match self.idle() {
            Some(connection) => connection,
            None => self.open().await?,
        };
        Ok(Lent { connection: Some(connection), pool: Arc::clone(self), _permit: permit })
    }

    /// Whether a proxy between gives each transaction another connection.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// Closes what is idle.
    pub(crate) fn clear(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The one that came back last, so that the others may be closed by whoever closes idle ones.
    fn idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(Connection::is_idle);
        idle.pop()
    }

    async fn open(&self) -> Tried<Connection> {
        let connection = Connection::open(&self.target).await.map_err(for_now)?;
        if !self.shared {
            connection.set_limits().await?;
        }
        Ok(connection)
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
