//! `millpond store export`: messages as lines, oldest first, in bounded memory.
//!
//! Lists are newest first, and what is sent again must come in the order in which it came. So pages are spooled, and
//! copied from the last to the first.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use millpond::query::{Field, Query};
use millpond::view::{Count, DeadLetterView, Find, Found, MessageRow};
use millpond::{MessageId, Pond, Timestamp};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tempfile::NamedTempFile;

use crate::exit::{Done, Exit, Failure};
use crate::output::{counted, note};
use crate::progress::Progress;
use crate::{Context, instant, open, queue};

/// Messages of a page, at most.
const PAGE_ROWS_MAX: u64 = 1_000;

/// Bytes of the bodies of a page, at most, but always one message.
const PAGE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Messages are counted up to this many, for the bar.
const COUNTED_MAX: u64 = 1_000_000;

/// What, and where to.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  millpond store export --queue mail --to mail.ndjson
  millpond queue send mail --file mail.ndjson --ndjson --envelopes --store sqlite://other.db
  millpond store export --dead-letters | jq -r .error

Each line is a message with its body and all that was said about it when it was sent. The dedup key is its id, so that lines that are sent
twice are stored once. What is leased is exported too: stop the workers first, or it may be done twice. A file is
complete when it appears under its name.")]
pub(crate) struct Args {
    /// Of this queue [default: every queue]
    #[arg(long)]
    queue: Option<String>,
    /// Dead letters that nobody sent again or cancelled, instead of what is to be done
    #[arg(long)]
    dead_letters: bool,
    /// Into this file instead of stdout
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

/// A message as it is sent again.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    id: MessageId,
    queue: String,
    state: &'static str,
    /// The name of the work, if it is not the queue's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    priority: u8,
    #[serde(skip_serializing_if = "is_empty")]
    headers: Value,
    content_type: String,
    #[serde(flatten)]
    body: Exact,
    #[serde(serialize_with = "instant::serialize_if", skip_serializing_if = "Option::is_none")]
    at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts_max: Option<u32>,
    #[serde(serialize_with = "instant::serialize_if", skip_serializing_if = "Option::is_none")]
    retry_until: Option<Timestamp>,
    dedup_key: String,
    attempt: u32,
    #[serde(serialize_with = "instant::serialize")]
    sent_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// A body from which the same bytes come back.
#[derive(Debug, Serialize)]
enum Exact {
    /// JSON in one line, as it was sent.
    #[serde(rename = "body")]
    Json(Box<RawValue>),
    /// Text of another type.
    #[serde(rename = "body")]
    Text(String),
    /// Anything else.
    #[serde(rename = "bodyBase64")]
    Base64(String),
}

impl Exact {
    fn of(content_type: &str, bytes: Vec<u8>) -> Self {
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => return Self::Base64(BASE64_STANDARD.encode(error.as_bytes())),
        };
        if !content_type.contains("json") {
            return Self::Text(text);
        }
        // What has line breaks, or blanks around it, would not come back as it is.
        let is_one_line = !text.contains(['\n', '\r']) && text.trim() == text;
        match RawValue::from_string(text.clone()) {
            Ok(json) if is_one_line => Self::Json(json),
            _ => Self::Base64(BASE64_STANDARD.encode(text)),
        }
    }
}

fn is_empty(headers: &Value) -> bool {
    headers.as_object().is_none_or(serde_json::Map::is_empty)
}

impl From<MessageRow> for Line {
    fn from(row: MessageRow) -> Self {
        Self {
            id: row.id,
            kind: Some(row.kind).filter(|kind| *kind != row.queue),
            queue: row.queue,
            state: row.state.as_str(),
            key: row.key,
            priority: row.priority,
            headers: row.headers,
            body: Exact::of(&row.content_type, row.body),
            content_type: row.content_type,
            at: row.ready_at,
            attempts_max: row.attempts_max,
            retry_until: row.retry_until,
            dedup_key: row.id.to_string(),
            attempt: row.attempt,
            sent_at: row.sent_at,
            reason: row.reason,
            error: row.error,
        }
    }
}

impl From<DeadLetterView> for Line {
    fn from(row: DeadLetterView) -> Self {
        Self {
            id: row.id,
            kind: Some(row.kind).filter(|kind| *kind != row.queue),
            queue: row.queue,
            state: "dead",
            key: row.key,
            priority: row.priority,
            headers: row.headers,
            body: Exact::of(&row.content_type, row.body),
            content_type: row.content_type,
            at: None,
            attempts_max: row.attempts_max,
            retry_until: None,
            dedup_key: row.id.to_string(),
            attempt: row.attempt,
            sent_at: row.sent_at,
            reason: Some(row.reason),
            error: row.detail,
        }
    }
}

/// Exports.
pub(super) async fn run(args: Args, context: &Context) -> Done {
    let pond = open::existing(context.config.store()).await?;
    if let Some(name) = &args.queue {
        queue::must_be_declared(&pond, name).await?;
    }
    let folder = args.to.as_deref().map(folder_of);
    let mut spool = Spool::within(folder).map_err(|error| unwritable(args.to.as_deref(), &error))?;
    fill(&pond, &args, &mut spool).await?;
    let (lines, to) = (spool.lines, args.to.as_deref());
    match to {
        None => spool.copy(&mut io::stdout().lock())?,
        Some(path) => write_whole(path, spool).map_err(|error| unwritable(to, &error))?,
    }
    let what = if args.dead_letters { "dead letter" } else { "message" };
    note(&format!("{} exported", counted(lines, what)))?;
    Ok(ExitCode::SUCCESS)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn unwritable(path: Option<&Path>, error: &io::Error) -> Failure {
    let place = path.map_or("a temporary file".to_owned(), |path| path.display().to_string());
    let failure = Failure::new(Exit::Failed, "internal", format!("cannot write {place}"));
    failure.why(error.to_string()).advice("check the folder, its rights and the space on the disk")
}

/// Under another name until it is complete and on the disk.
fn write_whole(path: &Path, spool: Spool) -> io::Result<()> {
    let mut file = NamedTempFile::new_in(folder_of(path))?;
    spool.copy(file.as_file_mut())?;
    file.as_file().sync_all()?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

async fn fill(pond: &Pond, args: &Args, spool: &mut Spool) -> Result<(), Failure> {
    let (field, words) = match args.dead_letters {
        true => (Field::Status, &["open"][..]),
        false => (Field::State, &["ready", "leased", "scheduled", "retrying"][..]),
    };
    let mut query = Query::default().and(field, words.iter().map(|word| (*word).to_owned()));
    if let Some(queue) = &args.queue {
        query = query.and(Field::Queue, [queue.clone()]);
    }
    let (rows_max, mut count, mut after) = (rows_max(pond, args).await?, Count::UpTo(COUNTED_MAX), None);
    let mut bar = None;
    loop {
        let find = Find { query: query.clone(), after, rows_max, bodies: true, count };
        let (page, total) = match args.dead_letters {
            true => lines(pond.store().dead_letters(find).await?),
            false => lines(pond.store().messages(find).await?),
        };
        let bar = bar.get_or_insert_with(|| Progress::bar(total, "exporting"));
        bar.advance(page.items.len() as u64);
        (after, count) = (page.next, Count::No);
        spool.page(page.items).map_err(|error| unwritable(args.to.as_deref(), &error))?;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// So many that their bodies fit into memory, by the largest limit of the queues.
async fn rows_max(pond: &Pond, args: &Args) -> Result<usize, Failure> {
    let queues = pond.store().queues().await?;
    let exported = queues.iter().filter(|queue| args.queue.as_ref().is_none_or(|name| *name == queue.name));
    let largest = exported.map(|queue| queue.settings.message_limit()).max().unwrap_or(1);
    let rows = (PAGE_BYTES_MAX / largest.max(1)).clamp(1, PAGE_ROWS_MAX);
    Ok(usize::try_from(rows).unwrap_or(1))
}

struct Lines {
    items: Vec<Line>,
    next: Option<String>,
}

fn lines<T: Into<Line>>(found: Found<T>) -> (Lines, u64) {
    let items = found.items.into_iter().map(T::into).collect();
    (Lines { items, next: found.next }, found.matched)
}

/// Pages in a file that has no name.
struct Spool {
    file: BufWriter<File>,
    /// Where each page begins.
    begins: Vec<u64>,
    bytes: u64,
    lines: u64,
}

impl Spool {
    fn within(folder: Option<&Path>) -> io::Result<Self> {
        let file = match folder {
            Some(folder) => tempfile::tempfile_in(folder)?,
            None => tempfile::tempfile()?,
        };
        Ok(Self { file: BufWriter::new(file), begins: Vec::new(), bytes: 0, lines: 0 })
    }

    /// Adds lines, of which the first is the newest.
    fn page(&mut self, lines: Vec<Line>) -> io::Result<()> {
        self.begins.push(self.bytes);
        for line in lines.iter().rev() {
            let text = serde_json::to_vec(line)?;
            self.file.write_all(&text)?;
            self.file.write_all(b"\n")?;
            self.bytes += text.len() as u64 + 1;
            self.lines += 1;
        }
        Ok(())
    }

    /// Copies everything, the oldest first.
    fn copy(self, to: &mut impl Write) -> io::Result<()> {
        let mut file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        let mut end = self.bytes;
        for begin in self.begins.into_iter().rev() {
            file.seek(SeekFrom::Start(begin))?;
            io::copy(&mut (&mut file).take(end - begin), to)?;
            end = begin;
        }
        to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: u32) -> Line {
        Line {
            id: "0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10".parse().unwrap(),
            queue: "mail".into(),
            state: "ready",
            kind: None,
            key: None,
            priority: 2,
            headers: Value::Null,
            content_type: "application/json".into(),
            body: Exact::of("application/json", number.to_string().into_bytes()),
            at: None,
            attempts_max: None,
            retry_until: None,
            dedup_key: String::new(),
            attempt: 0,
            sent_at: Timestamp::from_secs(0),
            reason: None,
            error: None,
        }
    }

    #[test]
    fn a_body_is_written_so_that_its_bytes_come_back() {
        for (content_type, bytes, json) in [
            ("application/json", &b"{\"b\":1.10, \"a\":1}"[..], r#"{"body":{"b":1.10, "a":1}}"#),
            ("application/json", b"{\n}", r#"{"bodyBase64":"ewp9"}"#),
            ("application/json", b"{", r#"{"bodyBase64":"ew=="}"#),
            ("text/plain", b"a\nb", r#"{"body":"a\nb"}"#),
            ("image/png", b"\xff", r#"{"bodyBase64":"/w=="}"#),
        ] {
            assert_eq!(serde_json::to_string(&Exact::of(content_type, bytes.to_vec())).unwrap(), json);
        }
    }

    #[test]
    fn pages_that_come_newest_first_are_copied_oldest_first() {
        let mut spool = Spool::within(None).unwrap();
        for page in [vec![5, 4], vec![3], vec![], vec![2, 1]] {
            spool.page(page.into_iter().map(line).collect()).unwrap();
        }
        assert_eq!(spool.lines, 5);
        let mut copied = Vec::new();
        spool.copy(&mut copied).unwrap();
        let text = String::from_utf8(copied).unwrap();
        let bodies: Vec<Value> =
            text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["body"].clone()).collect();
        assert_eq!(bodies, [1, 2, 3, 4, 5]);
    }
}
