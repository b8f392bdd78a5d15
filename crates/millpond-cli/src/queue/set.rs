//! `millpond queue set` and `millpond queue unset`.

use std::process::ExitCode;

use millpond::QueueSettings;
use serde::Serialize;
use serde_json::Value;

use super::{look_at, setting, view};
use crate::act::{Reason, act};
use crate::exit::{Done, Failure};
use crate::{Context, open};

/// Which settings, and what they shall be.
#[derive(Debug, clap::Args)]
#[command(after_help = SET_EXAMPLES)]
pub(crate) struct SetArgs {
    /// The name of the queue
    queue: String,
    /// A setting with its value
    #[arg(value_name = "NAME=VALUE", required = true, value_parser = setting::assignment)]
    settings: Vec<(&'static str, String)>,
    #[command(flatten)]
    how: How,
}

/// Which settings.
#[derive(Debug, clap::Args)]
#[command(after_help = UNSET_EXAMPLES)]
pub(crate) struct UnsetArgs {
    /// The name of the queue
    queue: String,
    /// The names of settings
    #[arg(value_name = "NAME", required_unless_present = "all", value_parser = setting::name)]
    settings: Vec<&'static str>,
    /// Every setting that was changed at run time
    #[arg(long, conflicts_with = "settings")]
    all: bool,
    #[command(flatten)]
    how: How,
}

#[derive(Debug, clap::Args)]
struct How {
    /// Show what would be changed, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    reason: Reason,
}

const SET_EXAMPLES: &str = "\
Workers hear of it within their polling interval. What is set wins over the declaration, also over one that is deployed
later, until `queue unset`.

Settings: attempts_max backoff lease timeout message_limit retention dedup_window releases_max concurrency_per_node
exclusive concurrency rate events; timeout, concurrency_per_node, concurrency and rate may be `none`. A queue that was
declared as exclusive stays so, whatever is declared later, until it is set to false here.

Examples:
  millpond queue set mail attempts_max=3 timeout=10m
  millpond queue set mail backoff=1s..5m --reason 'the mail server is slow today'
  millpond queue set reports concurrency_per_node=2 --dry-run
  millpond queue set sms rate=30/1m --reason 'what the provider allows'
  millpond queue set ledger exclusive=false";

const UNSET_EXAMPLES: &str = "\
Examples:
  millpond queue unset mail timeout
  millpond queue unset mail --all --reason 'the mail server is back'";

/// What was changed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Changed {
    name: String,
    changed: Vec<Change>,
    dry_run: bool,
    settings: view::Settings,
}

#[derive(Debug, Serialize)]
struct Change {
    setting: &'static str,
    before: String,
    /// `None`: what is declared, which is not known before it is done.
    after: Option<String>,
}

/// Changes settings.
pub(super) async fn set(args: SetArgs, context: &Context) -> Done {
    let SetArgs { queue, settings, how } = args;
    let pond = open::to_write(context.config.store()).await?;
    let before = look_at(&pond, &queue).await?.settings;
    let mut wanted = before;
    for (name, value) in &settings {
        wanted = setting::with(wanted, name, value).map_err(Failure::usage)?;
    }
    wanted.check(&queue)?;
    let names: Vec<&'static str> = settings.iter().map(|(name, _)| *name).collect();
    let values: Vec<(String, Option<Value>)> =
        names.iter().map(|name| ((*name).to_owned(), Some(setting::stored(&wanted, name)))).collect();
    let object = settings.iter().map(|(name, value)| format!("{name}={value}"));
    let object = format!("{queue} {}", object.collect::<Vec<_>>().join(" "));
    let after = match how.dry_run {
        true => wanted,
        false => {
            let act = act("queue set", object, how.reason.reason);
            pond.store().change(queue.clone(), values, act).await?.settings
        }
    };
    say(&queue, &names, before, Some(after), how.dry_run, context)?;
    pond.close().await;
    Ok(ExitCode::SUCCESS)
}

/// Goes back to what is declared.
pub(super) async fn unset(args: UnsetArgs, context: &Context) -> Done {
    let UnsetArgs { queue, settings, all, how } = args;
    let pond = open::to_write(context.config.store()).await?;
    let view = look_at(&pond, &queue).await?;
    let is_changed = |name: &&str| view.changes.iter().any(|change| change.setting == **name);
    let names: Vec<&'static str> = match all {
        true => setting::NAMES.iter().copied().filter(is_changed).collect(),
        false => settings,
    };
    let values = names.iter().map(|name| ((*name).to_owned(), None)).collect();
    let after = match how.dry_run || names.is_empty() {
        true => None,
        false => {
            let act = act("queue unset", format!("{queue} {}", names.join(" ")), how.reason.reason);
            Some(pond.store().change(queue.clone(), values, act).await?.settings)
        }
    };
    say(&queue, &names, view.settings, after, how.dry_run, context)?;
    pond.close().await;
    Ok(ExitCode::SUCCESS)
}

fn say(
    queue: &str,
    names: &[&'static str],
    before: QueueSettings,
    after: Option<QueueSettings>,
    dry_run: bool,
    context: &Context,
) -> Result<(), Failure> {
    let change = |name: &&'static str| Change {
        setting: name,
        before: setting::text(&before, name),
        after: after.map(|after| setting::text(&after, name)),
    };
    let changed: Vec<Change> = names.iter().map(change).collect();
    let settings = view::Settings::from(after.unwrap_or(before));
    let changed = Changed { name: queue.to_owned(), changed, dry_run, settings };
    context.output.one(&changed, queue, |_| {
        if changed.changed.is_empty() {
            return format!("nothing to do: no setting of {queue} was changed at run time");
        }
        let verb = if dry_run { "would become" } else { "is now" };
        let line = |change: &Change| {
            let after = change.after.as_deref().unwrap_or("what is declared");
            format!("{} of {queue} {verb} {after} (was {})\n", change.setting, change.before)
        };
        changed.changed.iter().map(line).collect()
    })?;
    Ok(())
}
