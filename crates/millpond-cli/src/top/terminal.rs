//! The terminal while a screen is shown, and how it was before: it gets that back in every way out.

use std::io::{self, Write};
use std::sync::{Mutex, Once, PoisonError};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// The other screen, without a cursor, empty.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[2J";

/// Colour off, the cursor, and the screen that was there.
const LEAVE: &str = "\u{1b}[0m\u{1b}[?25h\u{1b}[?1049l";

/// What a terminal is taken for that does not say its size.
const SIZE_DEFAULT: (u16, u16) = (80, 24);

/// How the terminal was. A panic of any thread must find it.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// A terminal that shows a screen; dropping it gives it back.
#[derive(Debug)]
pub(super) struct Terminal(());

impl Terminal {
    /// Takes the terminal of stdin and stdout.
    pub(super) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut modes = before.clone();
        // A key is read as it is pressed, is not printed, and is no signal.
        modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN;
        give_back_at_panic();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let terminal = Self(());
        tcsetattr(io::stdin(), OptionalActions::Flush, &modes)?;
        say(ENTER)?;
        Ok(terminal)
    }

    /// Columns and rows.
    pub(super) fn size(&self) -> (usize, usize) {
        let size = tcgetwinsize(io::stdout()).map_or(SIZE_DEFAULT, |size| (size.ws_col, size.ws_row));
        let (columns, rows) = if size.0 == 0 || size.1 == 0 { SIZE_DEFAULT } else { size };
        (usize::from(columns), usize::from(rows))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back();
    }
}

/// Gives the terminal back, once.
fn give_back() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(before) = before else { return };
    // There is nobody to tell.
    let _ = say(LEAVE);
    let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &before);
}

/// What a panic says must be seen, so the terminal is given back before it is said.
fn give_back_at_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let say = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            give_back();
            say(info);
        }));
    });
}

fn say(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;
    use std::process::Command;

    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

    use super::*;

    const INNER: &str = "MILLPOND_OF_TEST_PANICS";

    /// Runs itself once more, in a terminal, and there it panics.
    #[test]
    fn a_panic_gives_the_terminal_back_before_it_is_said() {
        if std::env::var_os(INNER).is_some() {
            let _terminal = Terminal::enter().unwrap();
            panic!("of the test");
        }
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let side = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let before = format!("{:?}", tcgetattr(&side).unwrap().local_modes);
        let end = || side.try_clone().unwrap();
        let mut inner = Command::new(std::env::current_exe().unwrap());
        inner.args(["--exact", "top::terminal::tests::a_panic_gives_the_terminal_back_before_it_is_said"]);
        inner.arg("--nocapture").env(INNER, "1").stdin(end()).stdout(end()).stderr(end());
        let mut inner = inner.spawn().unwrap();
        let (mut terminal, mut seen) = (File::from(terminal), String::new());
        while !seen.contains("of the test") {
            let mut bytes = [0; 4096];
            let count = terminal.read(&mut bytes).unwrap();
            seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        assert!(!inner.wait().unwrap().success());
        let at = |text: &str| seen.find(text).unwrap_or_else(|| panic!("no {text:?} in {seen:?}"));
        assert!(at(ENTER) < at(LEAVE) && at(LEAVE) < at("of the test"), "{seen:?}");
        assert_eq!(format!("{:?}", tcgetattr(&side).unwrap().local_modes), before);
    }
}
