//! `millpond queue send --ndjson`: a file of messages, batch after batch.
//!
//! A batch is stored or not, and the file is read in order: so what was stored is always everything through some
//! line, and the next one is where to go on.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::process::ExitCode;
use std::sync::Arc;

use millpond::{Code, Pond, Queue, Raw, Stored};
use serde::Serialize;
use tokio::sync::Mutex;

use super::body::{Source, open, unreadable};
use super::envelope;
use super::lines::{Line, Lines, Stop};
use super::send::Options;
use crate::Context;
use crate::exit::{Done, Exit, Failure, exit_of};
use crate::interrupt::Interrupt;
use crate::output::{counted, note};
use crate::progress::Progress as Bar;

/// How far it is.
#[derive(Debug, Default, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
struct Progress {
    /// Messages that are new.
    sent: u64,
    /// Messages whose dedup key was held.
    duplicates: u64,
    /// The last line that is stored.
    through_line: u64,
}

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A body.
    Bodies,
    /// A message with everything said about it.
    Envelopes,
}

/// Sends every line from `from_line` on.
pub(super) async fn run(
    pond: &Pond,
    queue: &Queue<Raw>,
    source: Source,
    form: Form,
    from_line: u64,
    options: &Options,
    context: &Context,
) -> Done {
    let name = source.name();
    let (reader, length) = input(source)?;
    let bar = Bar::bytes(length, "sending");
    let mut shown = 0;
    let progress = Arc::new(Mutex::new(Progress { through_line: from_line - 1, ..Progress::default() }));
    // A read of a pipe may last: the signal ends it from beside.
    tokio::spawn(interrupted(Interrupt::listen()?, Arc::clone(&progress), context.output.is_json()));
    let mut lines = Lines::new(reader, form.line_limit(queue.settings().message_limit()), from_line);
    loop {
        let batch = match lines.batch() {
            Ok(batch) => batch,
            Err(stop) => return Err(stopped(stop, &name, *progress.lock().await)),
        };
        let Some(last) = batch.last().map(|line| line.number) else { break };
        // Held while a batch is under way, so that an interrupt waits for its outcome.
        let mut progress = progress.lock().await;
        let items: Result<Vec<_>, Stop> = batch.iter().map(|line| item(line, form, options)).collect();
        let items = items.map_err(|stop| stopped(stop, &name, *progress))?;
        let sent = pond.send(queue, items).await.map_err(|error| refused(error, &batch, *progress))?;
        let new = sent.messages.iter().filter(|message| message.stored == Stored::New).count() as u64;
        progress.sent += new;
        progress.duplicates += sent.messages.len() as u64 - new;
        progress.through_line = last;
        bar.advance(lines.bytes_read() - shown);
        shown = lines.bytes_read();
    }
    bar.finish();
    if lines.number() < from_line && 1 < from_line {
        note(&format!(
            "{name} has only {} lines: there is nothing from line {from_line} on",
            lines.number()
        ))?;
    }
    say(*progress.lock().await, queue, context)
}

impl Form {
    /// A line of this many bytes is too long.
    fn line_limit(self, body_limit: u64) -> u64 {
        match self {
            Form::Bodies => body_limit,
            Form::Envelopes => envelope::line_limit(body_limit),
        }
    }
}

fn item(line: &Line, form: Form, options: &Options) -> Result<millpond::Item<Raw>, Stop> {
    let with = |body| {
        let item = options.item(body);
        // An empty key is none, with the line's number or without.
        let key = options.dedup_key.iter().filter(|key| !key.is_empty());
        key.map(|key| format!("{key}#{}", line.number)).fold(item, |item, key| item.dedup_key(key))
    };
    match form {
        Form::Bodies => Ok(with(Raw::json(line.body.clone()))),
        Form::Envelopes => envelope::read(&line.body, with).map_err(|why| Stop::Bad {
            number: line.number,
            code: "invalid-json",
            why,
        }),
    }
}

fn say(progress: Progress, queue: &Queue<Raw>, context: &Context) -> Done {
    let Progress { sent, duplicates, through_line } = progress;
    context.output.one(&progress, &sent.to_string(), |_| {
        let before = if duplicates == 0 { String::new() } else { format!(", {duplicates} were sent before") };
        format!("sent {} to {}, through line {through_line}{before}", messages(sent), queue.name())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn input(source: Source) -> Result<(Box<dyn BufRead + Send>, Option<u64>), Failure> {
    match source {
        Source::Text(text) => Ok((Box::new(io::Cursor::new(text)), None)),
        Source::Stdin => Ok((Box::new(BufReader::new(io::stdin())), None)),
        Source::File(path) => {
            let file: File = open(&path)?;
            let length = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|data| data.len());
            Ok((Box::new(BufReader::with_capacity(64 * 1024, file)), length))
        }
    }
}

fn stopped(stop: Stop, name: &str, progress: Progress) -> Failure {
    match stop {
        Stop::Bad { number, code, why } => {
            let failure = Failure::new(Exit::Usage, code, format!("line {number}: {why}"));
            failure.why(so_far(progress)).advice(go_on("correct the line, then continue", progress))
        }
        Stop::Unreadable(error) => {
            let why = format!("{error}; {}", so_far(progress));
            unreadable(name, &io::Error::other(why)).advice(go_on("continue", progress))
        }
    }
}

/// A batch that the library refused, or of which the store says something.
fn refused(error: millpond::Error, batch: &[Line], progress: Progress) -> Failure {
    let line = error.index().and_then(|index| batch.get(index)).map(|line| line.number);
    let (causes, code) = (error.causes(), error.code());
    let failure = Failure::from(error);
    match (line, code) {
        (Some(number), _) => {
            let failure = Failure::new(exit_of(code), code.as_str(), format!("line {number}: {causes}"));
            failure.why(so_far(progress)).advice(go_on("correct it, then continue", progress))
        }
        (None, Code::UnknownOutcome) => {
            let (first, last) =
                (batch.first().map_or(0, |line| line.number), batch.last().map_or(0, |line| line.number));
            let maybe = format!("lines {first} to {last} may be stored; {}", so_far(progress));
            failure.why(maybe).advice("look at the queue first; with --dedup-key a repeat is safe")
        }
        (None, _) => failure.why(so_far(progress)).advice(go_on("then continue", progress)),
    }
}

fn so_far(progress: Progress) -> String {
    let Progress { sent, duplicates, through_line } = progress;
    if sent + duplicates == 0 {
        return "nothing is stored".to_owned();
    }
    format!("{} stored, through line {through_line}", messages(sent + duplicates))
}

fn go_on(first: &str, progress: Progress) -> String {
    match progress.through_line {
        0 => format!("{first} from the start"),
        line => format!("{first} with --from-line {}", line + 1),
    }
}

fn messages(count: u64) -> String {
    counted(count, "message")
}

/// Ends the process at a signal, once the batch under way is stored or refused.
async fn interrupted(interrupt: Interrupt, progress: Arc<Mutex<Progress>>, json: bool) {
    interrupt.asked().await;
    let progress = progress.lock().await;
    let failure = Failure::new(Exit::Interrupted, "interrupted", "interrupted");
    failure.why(so_far(*progress)).advice(go_on("continue", *progress)).report(json);
    std::process::exit(Exit::Interrupted as i32);
}
