//! A pgbouncer in transaction mode, in front of a Postgres.

use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use super::kept::{Kept, User, folder};
use super::postgres::Postgres;
use super::{free_port, program};

/// Connections that it keeps to the server.
const POOL_SIZE: u32 = 20;

/// How long it lets nobody in after the server did not; of itself 15 s.
const LOGIN_RETRY_SECONDS: u32 = 1;

/// A running pgbouncer.
#[derive(Debug)]
pub struct Pgbouncer {
    url: String,
    port: u16,
    _kept: Kept,
}

impl Pgbouncer {
    /// The one that the tests of this process share, in front of [`Postgres::shared`].
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Pgbouncer> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(Postgres::shared()))
    }

    /// Starts one in front of a private server.
    ///
    /// # Panics
    ///
    /// When it is not installed or does not start.
    pub fn start(server: &Postgres) -> Self {
        let user = User::instead_of_root("postgres");
        let (folder, port) = (folder("pgbouncer", user), free_port());
        let settings = format!(
            "[databases]\npostgres = host=127.0.0.1 port={} dbname=postgres user=postgres\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = any\npool_mode = transaction\nmax_client_conn = 2000\ndefault_pool_size = {POOL_SIZE}\n\
             server_login_retry = {LOGIN_RETRY_SECONDS}\n",
            server.port()
        );
        std::fs::write(folder.join("pgbouncer.ini"), settings).expect("the folder is there");
        let mut bouncer = Command::new(program("pgbouncer", &[PathBuf::from("/usr/sbin")]));
        bouncer.arg("-q").arg(folder.join("pgbouncer.ini"));
        let answers = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
        let kept = Kept::start(&folder, user, "INT", &mut bouncer, answers);
        Self { url: format!("postgres://postgres@127.0.0.1:{port}/postgres"), port, _kept: kept }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of the server's database, through it.
    pub fn url(&self) -> &str {
        &self.url
    }
}
