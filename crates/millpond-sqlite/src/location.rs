//! Where a store is, from its URL, and whether it can be there.

use std::path::{Path, PathBuf};

use millpond_core::error::{Code, Error, Result};
use millpond_core::redact;
use millpond_core::text::nearest;

/// Whether an acknowledged send survives a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// Every send is flushed to the disk before it is acknowledged. The default.
    #[default]
    Full,
    /// Sends are handed to the operating system. A kill of the process loses nothing; a power cut may lose the
    /// sends of the last moments, acknowledged ones among them. Single sends are several times faster.
    Normal,
}

/// A parsed `sqlite:` URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// `None`: in memory.
    pub path: Option<PathBuf>,
    /// How sends are flushed.
    pub synchronous: Synchronous,
}

const SCHEME: &str = "sqlite:";
const PARAMETERS: [&str; 1] = ["synchronous"];

impl Location {
    /// Parses `sqlite://path`, `sqlite:///absolute/path` or `sqlite::memory:`, with `?synchronous=full` or
    /// `?synchronous=normal`.
    ///
    /// # Errors
    ///
    /// `unsupported-store` for another scheme, `invalid-config` for an unknown parameter or value.
    pub fn parse(url: &str) -> Result<Self> {
        // A URL of another kind may hold a password.
        let doing = || format!("open store `{}`", redact::summary(url));
        let Some(rest) = url.strip_prefix(SCHEME) else {
            let why = "the URL does not begin with `sqlite:`";
            return Err(Error::new(Code::UnsupportedStore, doing()).because(why));
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut synchronous = Synchronous::Full;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            synchronous =
                parameter(pair).map_err(|why| Error::new(Code::InvalidConfig, doing()).because(why))?;
        }
        if place == ":memory:" {
            return Ok(Self { path: None, synchronous });
        }
        let path = place.strip_prefix("//").unwrap_or(place);
        if path.is_empty() {
            return Err(Error::new(Code::InvalidConfig, doing()).because("the URL names no file"));
        }
        Ok(Self { path: Some(path.into()), synchronous })
    }
}

fn parameter(pair: &str) -> std::result::Result<Synchronous, String> {
    match pair.split_once('=') {
        Some(("synchronous", "full")) => Ok(Synchronous::Full),
        Some(("synchronous", "normal")) => Ok(Synchronous::Normal),
        Some(("synchronous", other)) => Err(format!("synchronous is `{other}`; it is full or normal")),
        _ => {
            let name = pair.split_once('=').map_or(pair, |(name, _)| name);
            let hint = nearest(name, &PARAMETERS).map(|near| format!("; did you mean `{near}`?"));
            Err(format!("there is no parameter `{name}`{}", hint.unwrap_or_default()))
        }
    }
}

/// The file beside a database that has its name and this ending.
pub(crate) fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// File systems over a network: their locks and shared memory do not hold what SQLite needs of them.
const NETWORK: [&str; 14] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "afs",
    "ceph",
    "glusterfs",
    "lustre",
    "gpfs",
    "ncpfs",
    "beegfs",
    "fuse.sshfs",
    "fuse.glusterfs",
];

/// Refuses a file on a network file system, where the mount table tells.
pub(crate) fn refuse_network(path: &Path) -> Result<()> {
    let Ok(mounts) = std::fs::read_to_string("/proc/self/mounts") else { return Ok(()) };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(folder) = parent.canonicalize() else { return Ok(()) };
    match network_type(&mounts, &folder) {
        None => Ok(()),
        Some(kind) => {
            let why =
                format!("{} is on a network file system ({kind}), which cannot keep it safe", path.display());
            Err(Error::new(Code::UnsupportedStore, "open the store").because(why))
        }
    }
}

/// The type of the file system of `folder`, if it is one over a network.
fn network_type<'m>(mounts: &'m str, folder: &Path) -> Option<&'m str> {
    let fields = |line: &'m str| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    };
    let holds = |(place, _): &(&str, &str)| folder.starts_with(place.replace("\\040", " "));
    let (_, kind) = mounts.lines().filter_map(fields).filter(holds).max_by_key(|(place, _)| place.len())?;
    NETWORK.contains(&kind).then_some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, path: Option<&str>, synchronous: Synchronous) {
        assert_eq!(Location::parse(url).unwrap(), Location { path: path.map(PathBuf::from), synchronous });
    }

    #[test]
    fn urls_name_a_file_or_memory() {
        check("sqlite://app.db", Some("app.db"), Synchronous::Full);
        check("sqlite:///var/lib/app.db", Some("/var/lib/app.db"), Synchronous::Full);
        check("sqlite:app.db?synchronous=normal", Some("app.db"), Synchronous::Normal);
        check("sqlite::memory:", None, Synchronous::Full);
    }

    #[test]
    fn mistakes_are_named() {
        for (url, code, expected) in [
            ("postgres://x", Code::UnsupportedStore, "does not begin with `sqlite:`"),
            ("sqlite://", Code::InvalidConfig, "names no file"),
            ("sqlite://a?synchronus=full", Code::InvalidConfig, "did you mean `synchronous`?"),
            ("sqlite://a?synchronous=off", Code::InvalidConfig, "it is full or normal"),
        ] {
            let error = Location::parse(url).unwrap_err();
            assert_eq!(error.code(), code, "{url}");
            assert!(error.causes().contains(expected), "{}", error.causes());
        }
    }

    #[test]
    fn a_password_in_the_url_is_in_no_error() {
        let error = Location::parse("postgres://ada:hunter2@db/x").unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn the_longest_mount_decides() {
        let mounts = "/dev/vda / ext4 rw 0 0\nserver:/x /mnt nfs4 rw 0 0\n/dev/vdb /mnt/local ext4 rw 0 0\n";
        assert_eq!(network_type(mounts, Path::new("/mnt/data")), Some("nfs4"));
        assert_eq!(network_type(mounts, Path::new("/mnt/local/data")), None);
        assert_eq!(network_type(mounts, Path::new("/home")), None);
    }
}
