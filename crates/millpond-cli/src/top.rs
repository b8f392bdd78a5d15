//! `millpond top`: queues and workers, live.
//!
//! A tick is one reading of queues and one of workers, whatever is shown of them; rates are differences between two.

mod frame;
mod keys;
mod screen;
mod terminal;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond::view::{QueueView, WorkerView};
use millpond::{Code, Error, Pond, Store, Timestamp};
use millpond_core::hints::coarse;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior};

use crate::args::{count, duration};
use crate::colour::{self, Stream};
use crate::exit::Done;
use crate::interrupt::Interrupt;
use crate::output::clean;
use crate::{Context, open};
use frame::{COLUMNS, Frame, Sort};
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

/// What one reading found.
struct Found {
    now: Timestamp,
    queues: Vec<QueueView>,
    workers: Vec<WorkerView>,
    took: Duration,
}

/// Reads once.
async fn read(store: Arc<dyn Store>) -> millpond::Result<Found> {
    let begun = Instant::now();
    let now = store.now().await?;
    let queues = store.queues().await?;
    let workers = store.workers().await?;
    Ok(Found { now, queues, workers, took: begun.elapsed() })
}

fn frame(found: Found, before: Option<&Frame>, sort: Sort) -> Frame {
    let Found { now, queues, workers, took } = found;
    let mut frame = Frame::of(now, queues, workers, took, before);
    frame.sort(sort);
    frame
}

/// Frames one after the other, for programs and pipes.
async fn print(pond: &Pond, args: &Args, context: &Context) -> Done {
    let output = &context.output;
    let is_one = output.is_json() || output.is_table() || output.is_rows();
    let mut left = args.count.unwrap_or(if is_one { 1 } else { u32::MAX });
    let mut ticks = ticks(args.every);
    let mut before: Option<Frame> = None;
    while 0 < left {
        ticks.tick().await;
        let frame = frame(read(Arc::clone(pond.store())).await?, before.as_ref(), args.sort);
        if output.is_rows() {
            output.list(&frame.queues, &COLUMNS, "")?;
        } else {
            let screen = Screen { rows: usize::MAX, columns: usize::MAX, ..Screen::of(args) };
            output.one(&frame, "", |_| screen.lines(&frame).join("\n") + "\n")?;
        }
        before = Some(frame);
        if args.count.is_some() || is_one {
            left -= 1;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn ticks(every: Duration) -> Interval {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// The whole screen, until a key or a signal ends it. A reading that takes long holds up neither.
async fn live(pond: &Pond, args: &Args, context: &Context) -> Done {
    let interrupt = Interrupt::listen()?;
    let mut resized = signal(SignalKind::window_change())?;
    let store = clean(&millpond::redact(context.config.store(), &[]));
    let terminal = Terminal::enter()?;
    let mut keys = Keys::read();
    let mut ticks = ticks(args.every);
    let (mut sort, mut left) = (args.sort, args.count.unwrap_or(u32::MAX));
    let mut shown: Option<Frame> = None;
    let mut reading: Option<(Instant, JoinHandle<millpond::Result<Found>>)> = None;
    let mut trouble = None;
    loop {
        let answer = async {
            match &mut reading {
                Some((_, reading)) => reading.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            answer = answer => {
                reading = None;
                let answer = answer.map_err(|ended| Error::new(Code::Internal, "read the store").because(ended.to_string()));
                match answer.and_then(|found| found) {
                    Ok(found) => {
                        shown = Some(frame(found, shown.as_ref(), sort));
                        trouble = None;
                        left -= u32::from(args.count.is_some());
                    }
                    // What was seen once may be seen again.
                    Err(error) if shown.is_some() => trouble = Some(error.to_string()),
                    Err(error) => return Err(error.into()),
                }
            }
            _ = ticks.tick() => match &reading {
                None => reading = Some((Instant::now(), tokio::spawn(read(Arc::clone(pond.store()))))),
                Some((begun, _)) => trouble = Some(format!("no answer for {}", coarse(begun.elapsed()))),
            },
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
        let (store, trouble) = (store.as_str(), trouble.as_deref());
        draw(&Screen { store, sort, columns, rows, colour, trouble, ..Screen::of(args) }.lines(frame))?;
        if left == 0 {
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
