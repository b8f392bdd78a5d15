//! The keys of the live screen.

use std::io::Read as _;

use tokio::sync::mpsc;

/// What a key means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// End.
    Quit,
    /// Another order.
    Sort,
    /// Read now.
    Read,
    /// Nothing.
    Other,
}

/// Keys that wait; more are dropped.
const WAITING_MAX: usize = 16;

/// Keys as they are pressed.
#[derive(Debug)]
pub(super) struct Keys(mpsc::Receiver<Key>);

impl Keys {
    /// Reads them in a thread of its own, which ends with the process.
    pub(super) fn read() -> Self {
        let (tell, keys) = mpsc::channel(WAITING_MAX);
        let read = move || {
            let mut byte = [0];
            while let Ok(1) = std::io::stdin().lock().read(&mut byte) {
                let _ = tell.try_send(meaning(byte[0]));
                if tell.is_closed() {
                    return;
                }
            }
            // The terminal is gone.
            let _ = tell.blocking_send(Key::Quit);
        };
        // Without keys there are still the signals.
        let _ = std::thread::Builder::new().name("millpond-keys".to_owned()).spawn(read);
        Self(keys)
    }

    /// The next one.
    pub(super) async fn next(&mut self) -> Key {
        match self.0.recv().await {
            Some(key) => key,
            None => std::future::pending().await,
        }
    }
}

/// Signals are not made of keys here: Ctrl-C is a byte, and Ctrl-Z nothing, for it would leave the screen as it is.
fn meaning(byte: u8) -> Key {
    const CTRL_C: u8 = 3;
    const CTRL_D: u8 = 4;
    match byte {
        b'q' | b'Q' | CTRL_C | CTRL_D => Key::Quit,
        b's' | b'S' => Key::Sort,
        b'r' | b'R' | b' ' => Key::Read,
        _ => Key::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_a_meaning() {
        for (byte, key) in [
            (b'q', Key::Quit),
            (3, Key::Quit),
            (b's', Key::Sort),
            (b' ', Key::Read),
            (26, Key::Other),
            (27, Key::Other),
        ] {
            assert_eq!(meaning(byte), key, "{byte}");
        }
    }
}
