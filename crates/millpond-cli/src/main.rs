//! The `millpond` binary: one module for each noun and for each verb that stands alone.

mod args;
mod codes;
mod colour;
mod config;
mod dead_letter;
mod demo;
mod exit;
mod explain;
mod health;
mod instant;
mod message;
mod migrate;
mod open;
mod output;
mod progress;
mod queue;
mod why;
mod work;
mod worker;

use std::process::ExitCode;

use args::{Args, Command};
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
    let config = Config::read(Given::with(args.global.store, args.global.config))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| {
        Failure::new(Exit::Failed, "internal", "cannot start the runtime").why(error.to_string())
    })?;
    let context = Context { config, output: output.clone() };
    let done = runtime.block_on(run(args.command, &context));
    // A read of stdin that nobody waits for any more must not hold the process.
    runtime.shutdown_background();
    done
}

async fn run(command: Command, context: &Context) -> Done {
    match command {
        Command::Queue(verb) => queue::run(verb, context).await,
        Command::Work(args) => work::run(args, context).await,
        Command::Message(verb) => message::run(verb, context).await,
        Command::DeadLetter(verb) => dead_letter::run(verb, context).await,
        Command::Why(args) => why::run(args, context).await,
        Command::Explain(args) => explain::run(args, context),
        Command::Worker(verb) => worker::run(verb, context).await,
        Command::Migrate(args) => migrate::run(args, context).await,
        Command::Config => config::run(&context.config, &context.output),
        Command::Health => health::run(context).await,
        Command::Demo(args) => Ok(demo::run(args, context.output.is_json()).await?),
        Command::DemoWorker(args) => Ok(demo::work(args).await?),
    }
}
