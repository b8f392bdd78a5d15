//! A server that ends with the process that started it, even if that is killed.

use std::io::{Read, Write};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a server may take until it answers.
const START_WAIT: Duration = Duration::from_secs(60);

/// How often it is asked meanwhile.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// Starts the server, stops and starts it again when told, and when its standard input closes, stops it and takes its
/// folder away. The kernel closes the pipe when the process at its other end is gone, so nothing has to be done for
/// that by the tests.
const KEEPER: &str = r#"folder=$1; stop=$2; shift 2
begin() { "$@" >>"$folder/log" 2>&1 </dev/null & server=$!; }
end() { kill "-$stop" "$server" 2>/dev/null; wait "$server"; }
begin "$@"
while read -r order; do
    case $order in
        stop) end ;;
        start) begin "$@" ;;
    esac
done
end
rm -rf "$folder""#;

/// The system user and group a server runs as; some refuse to run as root.
#[derive(Debug, Clone, Copy)]
pub(crate) struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// Someone else, if this process is root: `name`, or nobody.
    pub(crate) fn instead_of_root(name: &str) -> Option<Self> {
        let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| {
            use std::os::unix::fs::MetadataExt;
            own.uid() == 0
        });
        if !is_root {
            return None;
        }
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let find = |wanted: &str| {
            users.lines().find_map(|line| {
                let mut fields = line.split(':');
                (fields.next()? == wanted).then_some(())?;
                let mut numbers = fields.skip(1).map(|field| field.parse().ok());
                Some(Self { uid: numbers.next()??, gid: numbers.next()?? })
            })
        };
        find(name).or_else(|| find("nobody"))
    }

    /// The command, run as this user.
    pub(crate) fn run(user: Option<Self>, command: &mut Command) -> &mut Command {
        match user {
            Some(Self { uid, gid }) => command.uid(uid).gid(gid),
            None => command,
        }
    }
}

/// A new folder that belongs to `user`. Its keeper takes it away.
pub(crate) fn folder(name: &str, user: Option<User>) -> PathBuf {
    let unique =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |t| t.as_nanos());
    let folder = std::env::temp_dir().join(format!("millpond-{name}-{}-{unique}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder can be made");
    if let Some(User { uid, gid }) = user {
        chown(&folder, Some(uid), Some(gid)).expect("root may give a folder away");
    }
    folder
}

/// A running server. It is stopped when this is dropped, or when the process ends.
#[derive(Debug)]
pub struct Kept {
    keeper: Child,
    /// Closing it is what ends the server.
    line: Mutex<Option<ChildStdin>>,
    folder: PathBuf,
}

impl Kept {
    /// Starts `server` and waits until `answers`.
    ///
    /// # Panics
    ///
    /// When it does not answer in time; the text has the end of its log.
    pub(crate) fn start(
        folder: &Path,
        user: Option<User>,
        stop_signal: &str,
        server: &mut Command,
        mut answers: impl FnMut() -> bool,
    ) -> Self {
        let mut keeper = Command::new("/bin/sh");
        keeper.args(["-c", KEEPER, "keeper"]).arg(folder).arg(stop_signal);
        keeper.arg(server.get_program()).args(server.get_args());
        // A group of its own, so that Ctrl-C in a terminal does not take the keeper away from its server.
        keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        keeper.current_dir(folder);
        let mut keeper = User::run(user, &mut keeper).spawn().expect("a shell starts");
        let line = Mutex::new(keeper.stdin.take());
        let kept = Self { keeper, line, folder: folder.to_owned() };
        let began = Instant::now();
        while !answers() {
            assert!(began.elapsed() < START_WAIT, "the server does not answer:\n{}", kept.log());
            std::thread::sleep(ASK_EVERY);
        }
        kept
    }

    /// Stops the server by its signal; it is gone once `is_gone`.
    pub(crate) fn stop(&self, is_gone: impl FnMut() -> bool) {
        self.order("stop", is_gone);
    }

    /// Starts it again, on the same data, and waits until it `answers`.
    pub(crate) fn start_again(&self, answers: impl FnMut() -> bool) {
        self.order("start", answers);
    }

    fn order(&self, order: &str, mut obeyed: impl FnMut() -> bool) {
        if let Some(line) = &mut *self.line.lock().unwrap_or_else(PoisonError::into_inner) {
            writeln!(line, "{order}").expect("the keeper lives as long as this");
        }
        let began = Instant::now();
        while !obeyed() {
            assert!(began.elapsed() < START_WAIT, "the server did not {order}:\n{}", self.log());
            std::thread::sleep(ASK_EVERY);
        }
    }

    /// What the server has written.
    pub fn log(&self) -> String {
        let mut text = String::new();
        let read =
            std::fs::File::open(self.folder.join("log")).map(|mut file| file.read_to_string(&mut text));
        drop(read);
        text
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        drop(self.line.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        drop(self.keeper.wait());
    }
}
