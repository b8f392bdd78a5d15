//! Servers for tests: private ones, as child processes on free loopback ports with a folder of their own. They are
//! started when a test first needs them and stopped when its process ends, in whatever way it ends.
//!
//! A contributor may point at servers of their own instead: `MILLPOND_TEST_POSTGRES=postgres://…`,
//! `MILLPOND_TEST_MYSQL=mysql://…`.

pub mod kept;
pub mod mariadb;
pub mod pgbouncer;
pub mod postgres;

use std::net::TcpListener;
use std::path::PathBuf;

/// A loopback port that nobody listens on at present.
///
/// # Panics
///
/// When there is none.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it has an address").port()
}

/// The program of this name, in one of `folders` or on the path.
///
/// # Panics
///
/// When it is not installed: says how to install it.
fn program(name: &str, folders: &[PathBuf]) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let candidates = folders.iter().chain(&on_path).map(|folder| folder.join(name));
    candidates.into_iter().find(|file| file.is_file()).unwrap_or_else(|| {
        panic!("`{name}` is not installed: run `cargo xtask services install`, or name a server of your own")
    })
}
