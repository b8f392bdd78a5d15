//! What is said about a line that `cargo xtask` does not understand.

use crate::guard::text::TASKS;

/// The most letters by which a task that is suggested may differ.
const DISTANCE_MAX: usize = 2;

/// Whether there is such a task.
pub fn is_task(word: &str) -> bool {
    TASKS.iter().any(|(name, _)| *name == word)
}

/// What is wrong with a line that begins with `task`.
pub fn wrong(task: &str) -> String {
    if is_task(task) {
        return format!("`cargo xtask {task}` takes no arguments");
    }
    let near = TASKS.iter().map(|(name, _)| (distance(task, name), *name)).min();
    let near = near.filter(|(distance, name)| *distance <= DISTANCE_MAX.min(name.len() / 2));
    let hint = near.map(|(_, name)| format!("; did you mean `{name}`?")).unwrap_or_default();
    format!("there is no task `{task}`{hint}")
}

/// The edit distance.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (line, left) in one.chars().enumerate() {
        let mut before = std::mem::replace(&mut row[0], line + 1);
        for (column, right) in other.chars().enumerate() {
            let changed = before + usize::from(left != right);
            before = row[column + 1];
            row[column + 1] = changed.min(before + 1).min(row[column] + 1);
        }
    }
    row[other.chars().count()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_with_arguments_and_no_task_are_two_mistakes() {
        assert_eq!(wrong("ci"), "`cargo xtask ci` takes no arguments");
        assert_eq!(wrong("tset"), "there is no task `tset`; did you mean `test`?");
        assert_eq!(wrong("benhc"), "there is no task `benhc`; did you mean `bench`?");
        assert_eq!(wrong("xy"), "there is no task `xy`");
    }
}
