//! `millpond top`: queues and workers, live.
//!
//! A tick is one reading of queues and one of workers, whatever is shown of them; rates are differences between two.

mod frame;
mod keys;
mod screen;
mod terminal;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use millpond::Pond;

use crate::args::{count, duration};
use crate::colour::{self, Stream};
use crate::exit::{Done, Failure};
use crate::interrupt::Interrupt;
use crate::output::clean;
use crate::{Context, open};
use frame::{Frame, Sort};
use keys::{Key, Keys};
use screen::Screen;
use terminal::Terminal;

/// The shortest time between two readings.
const EVERY_MIN: Duration = Duration::from_millis(100);

/// How often, and in which order.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  millpond top
  millpond top --every 5s --sort oldest
  millpond top -o json --count 1
  millpond top -o ndjson | jq '.totals.ready'

Keys: q or Ctrl-C ends, s changes the order, r reads now. Without a terminal, or with -o json or ndjson, frames are
printed one after the other. Rates are those between two frames, so the first has none.")]
pub(crate) struct Args {
    /// The time between two readings
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    every: Duration,
    /// End after so many frames [default: never on a terminal or with ndjson, else 1]
    #[arg(long, value_name = "N", value_parser = count)]
    count: Option<u32>,
    /// The order of the queues
    #[arg(long, value_enum, default_value_t = Sort::Problems)]
    sort: Sort,
}

/// Shows.
pub(crate) async fn run(args: Args, context: &Context) -> Done {
    let args = Args { every: args.every.max(EVERY_MIN), ..args };
    let pond = open::existing(context.config.store()).await?;
    let is_live = context.output.is_table() && io::stdout().is_terminal() && io::stdin().is_terminal();
    if is_live { live(&pond, &args, context).await } else { print(&pond, &args, context).await }
}

/// Reads once.
async fn read(pond: &Pond, before: Option<&Frame>) -> Result<Frame, Failure> {
    let begun = Instant::now();
    let store = pond.store();
    let now = store.now().await?;
    let queues = store.queues().await?;
    let workers = store.workers().await?;
    Ok(Frame::of(now, queues, workers, begun.elapsed(), before))
}

/// Frames one after the other, for programs and pipes.
async fn print(pond: &Pond, args: &Args, context: &Context) -> Done {
    let endless = !context.output.is_json() && !context.output.is_table() && args.count.is_none();
    let mut left = args.count.unwrap_or(1);
    let mut ticks = tokio::time::interval(args.every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut before: Option<Frame> = None;
    while endless || 0 < left {
        ticks.tick().await;
        let mut frame = read(pond, before.as_ref()).await?;
        frame.sort(args.sort);
        let shown = Screen {
            store: "",
            sort: args.sort,
            every: args.every,
            columns: usize::MAX,
            rows: usize::MAX,
            colour: false,
        };
        context.output.one(&frame, "", |_| shown.lines(&frame).join("\n") + "\n")?;
        before = Some(frame);
        left = left.saturating_sub(1);
    }
    Ok(ExitCode::SUCCESS)
}

/// The whole screen, until a key or a signal ends it.
async fn live(pond: &Pond, args: &Args, context: &Context) -> Done {
    let interrupt = Interrupt::listen()?;
    let mut resized = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::window_change())?;
    let store = clean(&millpond::redact(context.config.store(), &[]));
    let terminal = Terminal::enter()?;
    let mut keys = Keys::read();
    let mut ticks = tokio::time::interval(args.every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut sort, mut left) = (args.sort, args.count);
    let mut shown: Option<Frame> = None;
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                shown = Some(read(pond, shown.as_ref()).await?);
            }
            _ = resized.recv() => {}
            () = interrupt.asked() => break,
            key = keys.next() => match key {
                Key::Quit => break,
                Key::Sort => sort = sort.next(),
                Key::Read => ticks.reset_immediately(),
                Key::Other => continue,
            },
        }
        let Some(frame) = &mut shown else { continue };
        frame.sort(sort);
        let (columns, rows) = terminal.size();
        let colour = colour::allowed(Stream::Stdout);
        let screen = Screen { store: &store, sort, every: args.every, columns, rows, colour };
        draw(&screen.lines(frame))?;
        left = left.map(|left| left.saturating_sub(1));
        if left == Some(0) {
            break;
        }
    }
    drop(terminal);
    Ok(ExitCode::SUCCESS)
}

/// Over what is there, so that nothing flickers.
fn draw(lines: &[String]) -> io::Result<()> {
    let mut text = "\u{1b}[H".to_owned();
    text.push_str(&lines.iter().map(|line| format!("{line}\u{1b}[K")).collect::<Vec<_>>().join("\r\n"));
    text.push_str("\u{1b}[J");
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
