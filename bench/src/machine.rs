//! What a run was made on.

use std::process::Command;

/// Machine, system and versions, by name.
pub(crate) fn facts() -> Vec<(&'static str, String)> {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let model = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned());
    let memory = field("/proc/meminfo", "MemTotal")
        .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    let gib = memory.map_or_else(String::new, |kib| format!(", {} GiB of memory", (kib + (1 << 19)) >> 20));
    vec![
        ("machine", format!("{cores} cores of {model}{gib}")),
        ("system", format!("Linux {}; {}", kernel(), filesystem())),
        (
            "Millpond",
            format!(
                "{} at commit {}",
                env!("CARGO_PKG_VERSION"),
                output("git", &["rev-parse", "--short", "HEAD"])
            ),
        ),
        ("compiler", format!("{}, release build", output("rustc", &["--version"]))),
        ("date", output("date", &["-u", "+%Y-%m-%d"])),
    ]
}

/// The value of a line `name : value`.
fn field(file: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// The file system of the folder for temporary files, where the stores are.
fn filesystem() -> String {
    let folder = std::env::temp_dir();
    let kind = output("findmnt", &["-n", "-o", "FSTYPE", "-T", &folder.to_string_lossy()]);
    format!("temporary files on {kind}")
}

fn output(program: &str, args: &[&str]) -> String {
    let ran = Command::new(program).args(args).output();
    let text = ran.map(|ran| String::from_utf8_lossy(&ran.stdout).trim().to_owned()).unwrap_or_default();
    if text.is_empty() { "unknown".to_owned() } else { text }
}
