//! A TCP proxy before a server, which cuts connections after a number of bytes.
//!
//! A cut is *armed* first. The next connection over which something is sent takes it, lets as many more bytes pass as
//! it says in its direction, and is then closed on both sides at once, without the rest: so a request is cut off in its
//! middle, or has reached the server and its answer does not come back.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Which way the bytes go that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// What the client says: its request does not reach the server whole.
    ToServer,
    /// What the server says: the client does not hear what became of its request.
    ToClient,
}

/// A cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Which way.
    pub way: Way,
    /// Bytes that still pass.
    pub after: u64,
}

#[derive(Debug, Default)]
struct Shared {
    armed: Mutex<VecDeque<Cut>>,
    made: AtomicU64,
    stopped: AtomicBool,
    /// Both sides of every connection, to be closed at the end.
    open: Mutex<Vec<TcpStream>>,
}

/// A running proxy. Dropping it closes everything.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts one before the server at this loopback port.
    ///
    /// # Errors
    ///
    /// When no port is free.
    pub fn start(server: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (port, shared) = (listener.local_addr()?.port(), Arc::new(Shared::default()));
        let own = Arc::clone(&shared);
        let listener = std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if own.stopped.load(Ordering::Relaxed) {
                    break;
                }
                // A server that is away: the client is told so by the end of its connection.
                if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) {
                    let _ = connect(&own, &client, &server);
                }
            }
        });
        Ok(Self { port, shared, listener: Some(listener) })
    }

    /// The port that clients connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Arms a cut.
    pub fn arm(&self, cut: Cut) {
        lock(&self.shared.armed).push_back(cut);
    }

    /// Takes back what was armed and not taken by a connection.
    pub fn disarm(&self) {
        lock(&self.shared.armed).clear();
    }

    /// Cuts that were armed and have not been taken by a connection.
    pub fn armed(&self) -> usize {
        lock(&self.shared.armed).len()
    }

    /// Connections that were cut.
    pub fn made(&self) -> u64 {
        self.shared.made.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        for stream in lock(&self.shared.open).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // It waits for a client: this is the last one.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

fn connect(shared: &Arc<Shared>, client: &TcpStream, server: &TcpStream) -> std::io::Result<()> {
    for stream in [client, server] {
        stream.set_nodelay(true)?;
        lock(&shared.open).push(stream.try_clone()?);
    }
    let taken = Arc::new(Mutex::new(None));
    for (way, from, to) in [(Way::ToServer, client, server), (Way::ToClient, server, client)] {
        let pipe = Pipe {
            way,
            from: from.try_clone()?,
            to: to.try_clone()?,
            shared: Arc::clone(shared),
            taken: Arc::clone(&taken),
        };
        std::thread::spawn(move || pipe.run());
    }
    Ok(())
}

/// One way of a connection.
struct Pipe {
    way: Way,
    from: TcpStream,
    to: TcpStream,
    shared: Arc<Shared>,
    /// The cut that the connection has taken, with the bytes that are left.
    taken: Arc<Mutex<Option<Cut>>>,
}

impl Pipe {
    fn run(mut self) {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(length @ 1..) = self.from.read(&mut bytes) {
            let (passing, is_cut) = self.pass(length);
            let written = self.to.write_all(&bytes[..passing]);
            if is_cut {
                self.shared.made.fetch_add(1, Ordering::Relaxed);
            }
            if is_cut || written.is_err() {
                break;
            }
        }
        let _ = self.from.shutdown(Shutdown::Both);
        let _ = self.to.shutdown(Shutdown::Both);
    }

    /// How many of these bytes pass, and whether the connection ends behind them.
    fn pass(&self, length: usize) -> (usize, bool) {
        let mut taken = lock(&self.taken);
        if taken.is_none() && self.way == Way::ToServer {
            *taken = lock(&self.shared.armed).pop_front();
        }
        match &mut *taken {
            Some(cut) if cut.way == self.way => {
                let passing = usize::try_from(cut.after).unwrap_or(usize::MAX).min(length);
                cut.after -= passing as u64;
                (passing, passing < length)
            }
            _ => (length, false),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers each byte with two, and says what it has heard.
    fn server() -> (u16, JoinHandle<usize>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut heard, mut byte) = (0, [0]);
            while matches!(stream.read(&mut byte), Ok(1)) {
                heard += 1;
                if stream.write_all(&[byte[0]; 2]).is_err() {
                    break;
                }
            }
            heard
        });
        (port, served)
    }

    fn talk(cut: Option<Cut>) -> (usize, usize, u64) {
        let (port, served) = server();
        let proxy = Proxy::start(port).unwrap();
        cut.into_iter().for_each(|cut| proxy.arm(cut));
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).unwrap();
        client.write_all(b"hello").unwrap();
        let mut answer = [0; 10];
        let heard =
            (0..10).take_while(|place| matches!(client.read(&mut answer[*place..=*place]), Ok(1))).count();
        drop(client);
        (served.join().unwrap(), heard, proxy.made())
    }

    #[test]
    fn without_a_cut_everything_passes() {
        assert_eq!(talk(None), (5, 10, 0));
    }

    #[test]
    fn a_request_is_cut_off_in_its_middle() {
        let (served, heard, made) = talk(Some(Cut { way: Way::ToServer, after: 3 }));
        assert!(served <= 3 && heard <= 6, "{served} {heard}");
        assert_eq!(made, 1);
    }

    #[test]
    fn an_answer_is_cut_off_though_the_request_was_heard() {
        let (served, heard, made) = talk(Some(Cut { way: Way::ToClient, after: 2 }));
        assert!(1 <= served && heard <= 2, "{served} {heard}");
        assert_eq!(made, 1);
    }
}
