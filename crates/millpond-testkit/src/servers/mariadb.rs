//! A MariaDB server for tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::kept::{Kept, User, folder};
use super::postgres::Fsync;
use super::{free_port, program};

/// Names a contributor's own server, with a database in which tables may be made; then none is started.
const OWN: &str = "MILLPOND_TEST_MYSQL";

/// Run by the server at each start: whoever reaches its port may do everything.
const INIT: &str = "create database if not exists test;
create user if not exists test@'%' identified by '';
grant all on *.* to test@'%' with grant option;
";

/// A running MariaDB.
#[derive(Debug)]
pub struct Mariadb {
    url: String,
    port: u16,
    data: PathBuf,
    /// `None`: a contributor's own.
    kept: Option<Kept>,
}

impl Mariadb {
    /// The server that the tests of this process share: a private one without flushes, or the contributor's own.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Mariadb> = OnceLock::new();
        SHARED.get_or_init(|| match std::env::var(OWN) {
            Ok(url) => Self { url, port: 0, data: PathBuf::new(), kept: None },
            Err(_) => Self::start(Fsync::Off, &[]),
        })
    }

    /// Starts a private server with these settings (`name=value`).
    ///
    /// # Panics
    ///
    /// When MariaDB is not installed or does not start.
    pub fn start(fsync: Fsync, settings: &[&str]) -> Self {
        let user = User::instead_of_root("mysql");
        let folder = folder("mariadb", user);
        let (data, port) = (folder.join("data"), free_port());
        init(&data, user);
        std::fs::write(folder.join("init.sql"), INIT).expect("the folder is there");
        let mut server = Command::new(program("mariadbd", &[PathBuf::from("/usr/sbin")]));
        server.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
        server.arg(format!("--socket={}", folder.join("socket").display()));
        server.arg(format!("--pid-file={}", pid_file(&data).display()));
        server.arg(format!("--tmpdir={}", folder.display()));
        server.arg(format!("--init-file={}", folder.join("init.sql").display()));
        server.args([&format!("--port={port}"), "--bind-address=127.0.0.1", "--skip-name-resolve"]);
        server.args(["--max-connections=300", "--innodb-log-file-size=256M"]);
        if fsync == Fsync::Off {
            server.args(["--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync"]);
            server.args(["--innodb-doublewrite=0", "--sync-frm=0"]);
        }
        settings.iter().for_each(|text| {
            server.arg(format!("--{text}"));
        });
        let socket = folder.join("socket");
        let kept = Kept::start(&folder, user, "KILL", &mut server, || ready(&socket));
        Self { url: format!("mysql://test@127.0.0.1:{port}/test"), port, data, kept: Some(kept) }
    }

    /// The URL of its database.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its port; 0 for a contributor's own.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its data folder; empty for a contributor's own.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// What the server has written; empty for a contributor's own.
    pub fn log(&self) -> String {
        self.kept.as_ref().map(Kept::log).unwrap_or_default()
    }

    /// The process id of the server, now.
    pub fn process(&self) -> Option<u32> {
        std::fs::read_to_string(pid_file(&self.data)).ok()?.trim().parse().ok()
    }

    /// Stops the server as a crash does: without a word to anybody.
    ///
    /// # Panics
    ///
    /// When it does not stop, or is a contributor's own.
    pub fn crash(&self) {
        let is_gone = || !ready(&self.socket());
        self.kept.as_ref().expect("only a private server is crashed").stop(is_gone);
    }

    /// Starts it again on the same data and port.
    ///
    /// # Panics
    ///
    /// When it does not come back.
    pub fn start_again(&self) {
        let answers = || ready(&self.socket());
        self.kept.as_ref().expect("only a private server was crashed").start_again(answers);
    }

    fn socket(&self) -> PathBuf {
        self.data.with_file_name("socket")
    }
}

/// A prefix for the names of tables that no other test of this server has.
pub fn fresh_prefix() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("t{}_{}_", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn init(data: &Path, user: Option<User>) {
    let mut init = Command::new(program("mariadb-install-db", &[]));
    init.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
    init.args(["--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-flush-method=nosync"]);
    // Its temporary tables have names of which two processes may think of the same.
    let folder = data.parent().expect("the data are in a folder of the server");
    init.current_dir(folder).env("TMPDIR", folder);
    let ended = User::run(user, &mut init).output().expect("mariadb-install-db runs");
    assert!(ended.status.success(), "mariadb-install-db: {}", String::from_utf8_lossy(&ended.stderr));
}

fn pid_file(data: &Path) -> PathBuf {
    data.with_file_name("pid")
}

/// Whether it lets somebody in.
fn ready(socket: &Path) -> bool {
    let mut ask = Command::new(program("mariadb-admin", &[]));
    ask.args(["--no-defaults", "--user=test", "--silent"]).arg(format!("--socket={}", socket.display()));
    ask.arg("ping").output().is_ok_and(|asked| asked.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_starts_comes_back_after_a_crash_and_leaves_nothing() {
        let server = Mariadb::start(Fsync::Off, &[]);
        assert!(server.process().is_some(), "it says who it is");
        server.crash();
        server.start_again();
        let data = server.data.clone();
        drop(server);
        assert!(!data.exists(), "its folder is gone");
    }
}
