//! `millpond queue pause` and `millpond queue resume`.

use std::process::ExitCode;
use std::time::Duration;

use millpond::view::{Pause, Scope};
use millpond::{Due, Pond, Timestamp};
use serde::Serialize;

use super::look_at;
use super::view::Held;
use crate::act::{Reason, act};
use crate::args::duration;
use crate::exit::{Done, Exit, Failure};
use crate::output::Times;
use crate::{Context, instant, open};

/// What, how long, and why.
#[derive(Debug, clap::Args)]
#[command(after_help = PAUSE_EXAMPLES)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    which: Which,
    /// It ends by itself after this long
    #[arg(long = "for", value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    span: Option<Duration>,
    /// It ends by itself at this time: RFC 3339, +10m
    #[arg(long, value_name = "TIME", value_parser = instant::parse, conflicts_with = "span")]
    until: Option<Timestamp>,
    /// Show what would be paused, and pause nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    reason: Reason,
}

/// What.
#[derive(Debug, clap::Args)]
#[command(after_help = RESUME_EXAMPLES)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    which: Which,
    /// Show what would be resumed, and resume nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    reason: Reason,
}

#[derive(Debug, clap::Args)]
struct Which {
    /// The name of the queue
    queue: Option<String>,
    /// All queues: a pause of its own, beside those of single queues
    #[arg(long, conflicts_with = "queue")]
    all: bool,
}

const PAUSE_EXAMPLES: &str = "\
A queue that is paused already gets the new reason and end.

Examples:
  millpond queue pause mail --for 10m --reason 'the mail server is down'
  millpond queue pause mail --until 2027-01-31T08:00:00Z
  millpond queue pause --all --reason 'moving the database'";

const RESUME_EXAMPLES: &str = "\
A queue may be held twice: by a pause of its own and by one of all queues. Each is ended by itself.

Examples:
  millpond queue resume mail
  millpond queue resume --all";

/// What holds the queue, or all queues, afterwards.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    queue: Option<String>,
    paused_by: Vec<Held>,
    dry_run: bool,
    #[serde(skip)]
    was_held: bool,
}

impl Which {
    fn scope(&self) -> Result<Scope, Failure> {
        match (&self.queue, self.all) {
            (Some(name), _) => Ok(Scope::Queue(name.clone())),
            (None, true) => Ok(Scope::Global),
            (None, false) => {
                let tried = "refused: no queue was named";
                let advice = "name a queue, or say --all";
                Err(Failure::new(Exit::Refused, "invalid-parameter", tried).advice(advice))
            }
        }
    }
}

/// Pauses.
pub(super) async fn pause(args: PauseArgs, context: &Context) -> Done {
    let PauseArgs { which, span, until, dry_run, reason } = args;
    let scope = which.scope()?;
    let pond = open::to_write(context.config.store()).await?;
    let held = holding(&pond, &scope).await?;
    if let Some(until) = until.filter(|_| span.is_none()) {
        let now = pond.store().now().await?;
        if until <= now {
            let tried = format!("--until {} is past", instant::rfc3339(until));
            return Err(Failure::usage(tried).advice("name a later time, or --for 10m"));
        }
    }
    let due = span.map(Due::In).or(until.map(Due::At));
    let held = match dry_run {
        true => held,
        false => {
            pond.store().pause(scope.clone(), due, act("queue pause", object(&scope), reason.reason)).await?
        }
    };
    let answer = Answer { queue: which.queue, paused_by: shown(held), dry_run, was_held: false };
    let (name, verb) = answer.subject();
    context.output.one(&answer, answer.queue.as_deref().unwrap_or("*"), |times| {
        let end =
            answer.own().and_then(|held| held.until).map(|until| format!(" until {}", times.show(until)));
        match dry_run {
            true => format!("{name} would be paused"),
            false => format!("{name} {verb} paused{}", end.unwrap_or_default()),
        }
    })?;
    pond.close().await;
    Ok(ExitCode::SUCCESS)
}

/// Ends a pause.
pub(super) async fn resume(args: ResumeArgs, context: &Context) -> Done {
    let ResumeArgs { which, dry_run, reason } = args;
    let scope = which.scope()?;
    let pond = open::to_write(context.config.store()).await?;
    let mut held = holding(&pond, &scope).await?;
    let was_held = held.iter().any(|pause| pause.scope == scope);
    match dry_run {
        true => held.retain(|pause| pause.scope != scope),
        false => {
            held =
                pond.store().resume(scope.clone(), act("queue resume", object(&scope), reason.reason)).await?
        }
    }
    let answer = Answer { queue: which.queue, paused_by: shown(held), dry_run, was_held };
    context.output.one(&answer, answer.queue.as_deref().unwrap_or("*"), |times| answer.resumed(times))?;
    pond.close().await;
    Ok(ExitCode::SUCCESS)
}

impl Answer {
    /// What it is about, and the verb for it.
    fn subject(&self) -> (String, &'static str) {
        match &self.queue {
            Some(name) => (format!("queue `{name}`"), "is"),
            None => ("all queues".to_owned(), "are"),
        }
    }

    /// The pause that was asked for.
    fn own(&self) -> Option<&Held> {
        let global = self.queue.is_none();
        self.paused_by.iter().find(|held| held.is_global() == global)
    }

    fn resumed(&self, times: &Times) -> String {
        let (name, verb) = self.subject();
        let mut text = match (self.was_held, self.dry_run) {
            (true, true) => format!("{name} would be resumed"),
            (true, false) => format!("{name} {verb} resumed"),
            (false, _) => format!("nothing to do: {name} {verb} not paused by a pause of that kind"),
        };
        for held in &self.paused_by {
            text.push_str(&format!("\n  still held by {}", held.text(times)));
        }
        text
    }
}

/// What holds a queue now, or all of them.
async fn holding(pond: &Pond, scope: &Scope) -> Result<Vec<Pause>, Failure> {
    match scope {
        Scope::Queue(name) => Ok(look_at(pond, name).await?.paused_by),
        Scope::Global => {
            let queues = pond.store().queues().await?;
            let global =
                queues.into_iter().flat_map(|queue| queue.paused_by).find(|held| held.scope == Scope::Global);
            Ok(global.into_iter().collect())
        }
    }
}

fn object(scope: &Scope) -> String {
    match scope {
        Scope::Global => "all".to_owned(),
        Scope::Queue(name) => name.clone(),
    }
}

fn shown(held: Vec<Pause>) -> Vec<Held> {
    held.into_iter().map(Held::from).collect()
}
