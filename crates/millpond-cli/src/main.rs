//! The `millpond` binary: one module for each noun and for each verb that stands alone.

mod act;
mod args;
mod audit;
mod bulk;
mod codes;
mod colour;
mod completions;
mod config;
mod dead_letter;
mod demo;
mod doctor;
mod events;
mod exit;
mod explain;
mod filter;
mod health;
mod instant;
mod interrupt;
mod message;
mod migrate;
mod notify;
mod open;
mod outbox;
mod output;
mod paging;
mod paste;
mod progress;
mod queue;
mod redact;
mod reference;
mod span;
mod store;
mod top;
mod trend;
mod why;
mod work;
mod worker;

use std::process::ExitCode;

use args::{Any, Args, Command, Plain};
use config::{Config, Given};
use exit::{Done, Exit, Failure};
use output::Output;

fn main() -> ExitCode {
    let args = match args::parse() {
        Ok(args) => args,
        Err(code) => return code,
    };
    let output = Output::new(args.global.format(), args.global.utc);
    progress::for_table(output.is_table());
    start(args, &output).unwrap_or_else(|failure| failure.report(output.is_json()))
}

/// What every command gets.
struct Context {
    config: Config,
    output: Output,
}

fn start(args: Args, output: &Output) -> Done {
    let given = Given::with(args.global.store, args.global.config);
    let command = match args.command {
        Any::OfStore(command) => command,
        Any::Plain(command) => return run_plain(command, given, output),
    };
    let config = Config::read(given)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| {
        Failure::new(Exit::Failed, "internal", "cannot start the runtime").why(error.to_string())
    })?;
    let context = Context { config, output: output.clone() };
    let done = runtime.block_on(run(command, &context));
    // A read of stdin that nobody waits for any more must not hold the process.
    runtime.shutdown_background();
    done
}

/// What explains a wrong configuration must run in spite of it.
fn run_plain(command: Plain, given: Given, output: &Output) -> Done {
    match command {
        Plain::Explain(args) => explain::run(args, output),
        Plain::Check(args) => config::check(&args, given, output),
        Plain::Config(args) => config::run(&args, given, output),
        Plain::Completions(args) => completions::run(&args),
        Plain::Reference(args) => reference::run(&args),
    }
}

async fn run(command: Command, context: &Context) -> Done {
    match command {
        Command::Queue(verb) => queue::run(verb, context).await,
        Command::Work(args) => work::run(args, context).await,
        Command::WorkGuard(args) => work::guard(&args),
        Command::Message(verb) => message::run(verb, context).await,
        Command::DeadLetter(verb) => dead_letter::run(verb, context).await,
        Command::Outbox(verb) => outbox::run(verb, context).await,
        Command::Audit(verb) => audit::run(verb, context).await,
        Command::Events(verb) => events::run(verb, context).await,
        Command::Why(args) => why::run(args, context).await,
        Command::Top(args) => top::run(args, context).await,
        Command::Doctor(args) => doctor::run(args, context).await,
        Command::Store(verb) => store::run(verb, context).await,
        Command::Worker(verb) => worker::run(verb, context).await,
        Command::Migrate(args) => migrate::run(args, context).await,
        Command::Redact(args) => redact::run(&args, context),
        Command::Health(args) => health::run(args, context).await,
        Command::Demo(args) => Ok(demo::run(args, context.output.is_json()).await?),
        Command::DemoWorker(args) => Ok(demo::work(args).await?),
    }
}
