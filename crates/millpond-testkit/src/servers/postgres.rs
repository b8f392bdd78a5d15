//! A Postgres server for tests.

use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::kept::{Kept, User, folder};
use super::{free_port, program};

/// Names a contributor's own server; then none is started.
const OWN: &str = "MILLPOND_TEST_POSTGRES";

/// Where Debian keeps the programs of its versions.
const VERSIONS: &str = "/usr/lib/postgresql";

/// Whether an acknowledged commit is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    /// As in production.
    On,
    /// Where durability is not the question: several times faster on a slow disk.
    Off,
}

/// A running Postgres.
#[derive(Debug)]
pub struct Postgres {
    url: String,
    port: u16,
    data: PathBuf,
    /// `None`: a contributor's own.
    kept: Option<Kept>,
}

impl Postgres {
    /// The server that the tests of this process share: a private one without flushes, or the contributor's own.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(|| match std::env::var(OWN) {
            Ok(url) => Self { url, port: 0, data: PathBuf::new(), kept: None },
            Err(_) => Self::start(Fsync::Off, &[]),
        })
    }

    /// Starts a private server with these settings (`name=value`).
    ///
    /// # Panics
    ///
    /// When Postgres is not installed or does not start.
    pub fn start(fsync: Fsync, settings: &[&str]) -> Self {
        let user = User::instead_of_root("postgres");
        let folder = folder("postgres", user);
        let data = folder.join("data");
        init(&data, user);
        Self::run(&folder, data, free_port(), fsync, settings)
    }

    fn run(folder: &Path, data: PathBuf, port: u16, fsync: Fsync, settings: &[&str]) -> Self {
        let user = User::instead_of_root("postgres");
        let mut server = Command::new(program("postgres", &versions()));
        server.arg("-D").arg(&data).args(["-p", &port.to_string(), "-h", "127.0.0.1"]);
        let mut setting = |text: &str| {
            server.args(["-c", text]);
        };
        // No socket file: tests reach it as others reach theirs.
        setting("unix_socket_directories=");
        setting("max_connections=300");
        if fsync == Fsync::Off {
            setting("fsync=off");
            setting("full_page_writes=off");
        }
        settings.iter().for_each(|text| setting(text));
        let answers = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() && ready(port);
        let kept = Kept::start(folder, user, "QUIT", &mut server, answers);
        Self { url: format!("postgres://postgres@127.0.0.1:{port}/postgres"), port, data, kept: Some(kept) }
    }

    /// The URL of its database.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its port; 0 for a contributor's own.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its data folder, in which its configuration may be changed; empty for a contributor's own.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// What the server has written; empty for a contributor's own.
    pub fn log(&self) -> String {
        self.kept.as_ref().map(Kept::log).unwrap_or_default()
    }

    /// The process ids of the server and of all its backends, now.
    pub fn processes(&self) -> Vec<u32> {
        let file = std::fs::read_to_string(self.data.join("postmaster.pid")).unwrap_or_default();
        let postmaster = file.lines().next().and_then(|line| line.parse().ok());
        let children = postmaster.map(|pid: u32| {
            let path = format!("/proc/{pid}/task/{pid}/children");
            let children = std::fs::read_to_string(path).unwrap_or_default();
            children.split_whitespace().filter_map(|child| child.parse().ok()).collect::<Vec<u32>>()
        });
        postmaster.into_iter().chain(children.into_iter().flatten()).collect()
    }

    /// Stops the server as a crash does: without a word to anybody, and without a last checkpoint.
    ///
    /// # Panics
    ///
    /// When it does not stop, or is a contributor's own.
    pub fn crash(&self) {
        let is_gone = || self.at_work().is_empty();
        self.kept.as_ref().expect("only a private server is crashed").stop(is_gone);
    }

    /// kill -9 of the server and of all its processes at once.
    ///
    /// # Panics
    ///
    /// When it does not die, or is a contributor's own.
    pub fn kill_tree(&self) {
        let signal = |name: &str, processes: &[u32]| {
            let mut kill = Command::new("/bin/sh");
            kill.args(["-c", r#"kill "$@" 2>/dev/null"#, "kill", name]);
            kill.args(processes.iter().map(u32::to_string)).status().expect("a shell starts");
        };
        // Stopped first, it starts no process that is not in the list.
        signal("-STOP", &self.processes()[..1]);
        signal("-KILL", &self.at_work());
        self.crash();
    }

    /// The processes that are in its data folder, with or without a parent. While there is one, its shared memory is
    /// in use and no server starts on the data.
    fn at_work(&self) -> Vec<u32> {
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let here = |pid: &u32| std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|at| at == self.data);
        numbers.filter(here).collect()
    }

    /// Starts it again on the same data and port.
    ///
    /// # Panics
    ///
    /// When it does not come back.
    pub fn start_again(&self) {
        let answers = || ready(self.port);
        self.kept.as_ref().expect("only a private server was crashed").start_again(answers);
    }
}

/// A name for a schema that no other test of this server has.
pub fn fresh_schema() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn init(data: &Path, user: Option<User>) {
    let mut init = Command::new(program("initdb", &versions()));
    init.arg("-D").arg(data).args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]);
    init.current_dir(std::env::temp_dir());
    let ended = User::run(user, &mut init).output().expect("initdb runs");
    assert!(ended.status.success(), "initdb: {}", String::from_utf8_lossy(&ended.stderr));
}

fn ready(port: u16) -> bool {
    let mut ask = Command::new(program("pg_isready", &versions()));
    ask.args(["-q", "-h", "127.0.0.1", "-p", &port.to_string()]);
    ask.status().is_ok_and(|status| status.success())
}

/// The folders of the programs, the newest version first.
fn versions() -> Vec<PathBuf> {
    let folders = std::fs::read_dir(VERSIONS).into_iter().flatten().flatten().map(|entry| entry.path());
    let number = |folder: &PathBuf| folder.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let mut folders: Vec<PathBuf> = folders.filter(|folder| number(folder).is_some()).collect();
    folders.sort_by_key(|folder| std::cmp::Reverse(number(folder)));
    folders.into_iter().map(|folder| folder.join("bin")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_starts_comes_back_after_a_crash_and_leaves_nothing() {
        let server = Postgres::start(Fsync::Off, &[]);
        assert!(1 < server.processes().len(), "it has processes beside itself");
        server.crash();
        server.start_again();
        let data = server.data().to_owned();
        drop(server);
        assert!(!data.exists(), "its folder is gone");
    }

    #[test]
    fn nothing_is_at_work_once_the_tree_is_killed() {
        let server = Postgres::start(Fsync::Off, &["shared_buffers=512MB"]);
        for _ in 0..5 {
            assert!(1 < server.at_work().len(), "it has processes beside itself");
            server.kill_tree();
            assert!(server.at_work().is_empty(), "none holds its memory");
            server.start_again();
        }
    }
}
