//! Where the repository is and what is in it.

use std::path::{Path, PathBuf};

/// Folders that hold nothing of ours.
const SKIPPED: &[&str] = &["target", "node_modules", ".git"];

/// A text file of the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// From the root, with `/`.
    pub path: String,
    /// What is in it.
    pub text: String,
}

/// The root of the repository.
pub fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("xtask is a folder of the repository").to_owned()
}

/// The cargo that started us.
pub fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// The paths of all files below `root`, sorted, with `/`.
pub fn files(root: &Path) -> Vec<String> {
    let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            if !path.is_dir() {
                found.extend(path.strip_prefix(root).ok().map(|path| path.to_string_lossy().into_owned()));
            } else if !SKIPPED.iter().any(|skipped| name == *skipped) {
                folders.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Our Rust files.
pub fn rust(root: &Path) -> Vec<Source> {
    let ours = files(root).into_iter().filter(|path| path.ends_with(".rs"));
    ours.filter_map(|path| Some(Source { text: std::fs::read_to_string(root.join(&path)).ok()?, path }))
        .collect()
}
