//! `millpond store info` and `millpond store grants`.

use std::process::ExitCode;

use millpond::view::{Fact, Finding, StoreInfo};
use millpond_core::capability::Capabilities;
use millpond_core::hints::Level;
use serde::Serialize;
use serde_json::Value;

use crate::exit::Done;
use crate::output::{Column, clean, table};
use crate::{Context, open};

/// What a store tells, in the words of the HTTP API.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    kind: String,
    facts: Vec<ShownFact>,
    tables: Vec<Rows>,
    capabilities: Vec<Capability>,
    findings: Vec<ShownFinding>,
}

#[derive(Debug, Serialize)]
struct ShownFact {
    name: String,
    value: Value,
    about: String,
}

#[derive(Debug, Serialize)]
struct Rows {
    name: String,
    rows: u64,
}

#[derive(Debug, Serialize)]
struct Capability {
    name: &'static str,
    available: bool,
    about: &'static str,
}

#[derive(Debug, Serialize)]
struct ShownFinding {
    code: String,
    severity: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<String>,
}

/// A permission.
#[derive(Debug, Serialize)]
struct Grant {
    grant: String,
}

const FACTS: [Column<ShownFact>; 3] = [
    Column::new("fact", |row, _| row.name.clone()),
    Column::text("value", |row, _| shown(&row.value)),
    Column::text("about", |row, _| row.about.clone()),
];

const TABLES: [Column<Rows>; 2] =
    [Column::new("table", |row, _| row.name.clone()), Column::new("rows", |row, _| row.rows.to_string())];

const CAPABILITIES: [Column<Capability>; 3] = [
    Column::new("capability", |row, _| row.name.to_owned()),
    Column::new("available", |row, _| if row.available { "yes" } else { "no" }.to_owned()),
    Column::text("about", |row, _| row.about.to_owned()),
];

const GRANTS: [Column<Grant>; 1] = [Column::whole("grant", |row, _| row.grant.clone())];

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn capabilities(can: Capabilities) -> Vec<Capability> {
    let of = |name, available, about| Capability { name, available, about };
    vec![
        of("survives-restart", can.survives_restart, "what was stored is there after a restart"),
        of("many-processes", can.many_processes, "several processes may share it"),
        of("effects-once", can.effects_once, "a handler commits its writes with its acknowledgement"),
    ]
}

/// Tells.
pub(super) async fn run(context: &Context) -> Done {
    let pond = open::existing(context.config.store()).await?;
    let StoreInfo { kind, facts, tables, findings, .. } = pond.store().info().await?;
    let fact = |Fact { name, value, about }| ShownFact { name, value, about };
    let finding = |Finding { code, severity, text, action }| ShownFinding {
        code,
        severity: Level::from(severity).as_str(),
        message: text,
        action,
    };
    let told = Shown {
        kind,
        facts: facts.into_iter().map(fact).collect(),
        tables: tables.into_iter().map(|(name, rows)| Rows { name, rows }).collect(),
        capabilities: capabilities(pond.store().capabilities()),
        findings: findings.into_iter().map(finding).collect(),
    };
    context.output.one(&told, &told.kind, |times| {
        let mut text = format!(
            "{}\n\n{}\n{}\n{}",
            told.kind,
            table(&told.facts, &FACTS, times),
            table(&told.tables, &TABLES, times),
            table(&told.capabilities, &CAPABILITIES, times)
        );
        for ShownFinding { code, severity, message, action } in &told.findings {
            let action = action.as_ref().map(|action| format!(": {action}")).unwrap_or_default();
            text.push_str(&format!("\n{severity}  {code}  {}", clean(&format!("{message}{action}"))));
        }
        text
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Lists what a program needs.
pub(super) async fn grants(context: &Context) -> Done {
    let pond = open::existing(context.config.store()).await?;
    let grants = pond.store().info().await?.grants.into_iter().map(|grant| Grant { grant });
    context.output.list(&grants.collect::<Vec<_>>(), &GRANTS, "nothing: it knows no rights")?;
    Ok(ExitCode::SUCCESS)
}
