//! Who may depend on whom, read from the output of `cargo metadata`.

use serde_json::Value;

/// What core may use from others: it decides, so it needs words and no machinery.
const CORE_USES: &[&str] = &["serde", "serde_json", "sha2", "thiserror", "uuid"];

/// Drivers: only the store of that database may use one.
const DRIVERS: &[(&str, &str)] = &[
    ("rusqlite", "millpond-sqlite"),
    ("tokio-postgres", "millpond-postgres"),
    ("mysql_async", "millpond-mysql"),
    ("redis", "millpond-redis"),
    ("lapin", "millpond-amqp"),
    ("async-nats", "millpond-nats"),
];

/// Programs that look at the others from outside.
const OUTSIDE: &[&str] = &["millpond-cli", "millpond-torture", "millpond-bench", "xtask"];

/// Crates that must be nowhere in the tree, and why.
const BANNED: &[(&str, &str)] = &[
    ("aws-lc-sys", "a second TLS provider makes rustls panic: choose the `ring` feature of what brings it"),
    ("openssl-sys", "TLS is rustls with ring: choose that feature of what brings it"),
];

/// Which crates of ours each crate of ours may use. What is not listed may use nothing of ours.
fn allowed(package: &str, development: bool) -> &'static [&'static str] {
    match (package, development) {
        ("millpond-engine", false) => &["millpond-core"],
        ("millpond-sql" | "millpond-webhook", false) => &["millpond-core"],
        // What stores have in common is below them, and known to them alone.
        ("millpond-sqlite" | "millpond-postgres" | "millpond-mysql", false) => {
            &["millpond-core", "millpond-sql"]
        }
        ("millpond", false) => {
            &["millpond-core", "millpond-engine", "millpond-sqlite", "millpond-postgres", "millpond-mysql"]
        }
        // The facade, and of core what only somebody who operates needs: what it knows of is no promise to users.
        ("millpond-cli", false) => &["millpond", "millpond-core", "millpond-webhook"],
        // It drives the real engine, so that a contract holds for what runs and not for a model of it.
        ("millpond-testkit", false) => &["millpond-core", "millpond-engine"],
        // For tests of users' programs: the facade with the store in memory, and what our own tests are made of.
        ("millpond-test", false) => &["millpond", "millpond-core", "millpond-engine", "millpond-testkit"],
        ("millpond-torture" | "millpond-bench", _) => &[
            "millpond",
            "millpond-core",
            "millpond-engine",
            "millpond-sqlite",
            "millpond-postgres",
            "millpond-mysql",
            "millpond-testkit",
        ],
        ("millpond-sqlite" | "millpond-postgres" | "millpond-mysql", true) => {
            &["millpond-testkit", "millpond-engine"]
        }
        ("millpond" | "millpond-cli" | "millpond-engine", true) => {
            &["millpond-testkit", "millpond", "millpond-sqlite"]
        }
        ("millpond-testkit", true) => &["millpond-sqlite", "millpond"],
        _ => &[],
    }
}

/// What breaks the picture in ARCHITECTURE.md.
pub fn breaches(metadata: &Value) -> Vec<String> {
    let packages = list(metadata, "packages");
    let ours: Vec<&str> = packages.iter().map(|package| text(package, "name")).collect();
    let mut found = Vec::new();
    for package in packages {
        let name = text(package, "name");
        for dependency in list(package, "dependencies") {
            let (used, kind) = (text(dependency, "name"), text(dependency, "kind"));
            let is_ours = ours.contains(&used);
            let sabotages = list(dependency, "features").iter().any(|feature| feature == "sabotage");
            if sabotages && name != "millpond-torture" {
                found.push(format!(
                    "`{name}` turns on `sabotage` of `{used}`: known bugs are for the crash tests alone"
                ));
            }
            found.extend(breach(name, used, is_ours, kind == "dev"));
        }
    }
    found
}

fn breach(name: &str, used: &str, is_ours: bool, development: bool) -> Option<String> {
    if is_ours && OUTSIDE.contains(&used) {
        return Some(format!(
            "`{name}` uses `{used}`, which nobody may use: it looks at the others from outside"
        ));
    }
    if is_ours && !allowed(name, development).contains(&used) {
        let may = allowed(name, development).join("`, `");
        let may = if may.is_empty() { "nothing of ours".to_owned() } else { format!("`{may}`") };
        return Some(format!("`{name}` uses `{used}`; it may use {may}. See \"Arrows\" in ARCHITECTURE.md"));
    }
    if name == "millpond-core" && !is_ours && !development && !CORE_USES.contains(&used) {
        let why = "core decides and needs no machinery: act at the edge, in the engine or in a store";
        return Some(format!("`millpond-core` uses `{used}`; {why}"));
    }
    let store = DRIVERS.iter().find(|(driver, _)| *driver == used).map(|(_, store)| *store)?;
    let may = name == store || OUTSIDE.contains(&name) || development;
    (!may).then(|| format!("`{name}` uses the driver `{used}`, which is for `{store}` alone"))
}

/// Banned crates that the lock file names.
pub fn banned(lock_file: &str) -> Vec<String> {
    let named = |name: &str| lock_file.lines().any(|line| line == format!("name = \"{name}\""));
    let banned = BANNED.iter().filter(|(name, _)| named(name));
    banned.map(|(name, why)| format!("Cargo.lock has `{name}`: {why}")).collect()
}

fn list<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}
