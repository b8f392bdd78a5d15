//! `millpond queue send`: one message, or a file of them.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use millpond::{Item, MessageId, Queue, Raw, SentMessage, Stored, Timestamp};
use serde::Serialize;

use super::body::{Source, not_json, typed};
use super::import;
use crate::args::{count, duration};
use crate::exit::{Done, Failure};
use crate::output::note;
use crate::{Context, instant, open};

/// What is sent, and what is said about it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The queue, which must be there
    queue: String,
    /// The body as it stands; `-` is stdin
    #[arg(conflicts_with = "file")]
    body: Option<String>,
    /// A file with the body, or with the lines of --ndjson
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Each line is a message, JSON as it stands, of --file or else of stdin; stored in batches of 1000 lines or 4 MiB
    #[arg(long)]
    ndjson: bool,
    /// With --ndjson: each line is an object with body or bodyBase64, and with kind, key, headers, at, delay and the
    /// like if it needs them, as `store export` writes it
    #[arg(long, requires = "ndjson")]
    envelopes: bool,
    /// With --ndjson: pass over the lines before this one
    #[arg(long, value_name = "N", default_value_t = 1, requires = "ndjson", value_parser = clap::value_parser!(u64).range(1..))]
    from_line: u64,
    #[command(flatten)]
    options: Options,
    /// The type of the body [default: JSON if it is, else text or bytes]
    #[arg(long, value_name = "TYPE", conflicts_with = "ndjson")]
    content_type: Option<String>,
    /// Check queue and body, send nothing
    #[arg(long, conflicts_with = "ndjson")]
    dry_run: bool,
}

const EXAMPLES: &str = "\
Examples:
  millpond queue send mail '{\"user_id\":1}'
  millpond queue send mail '{\"user_id\":1}' --delay 5m --key customer:812 --dedup-key order-17
  millpond queue send photos --file cat.png --content-type image/png
  zcat users.ndjson.gz | millpond queue send mail --ndjson

A file of lines that was stopped goes on with --from-line. With --dedup-key K each line has the key K#<its line>,
so that a file that is sent twice is stored once.";

/// Options of a message.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// The name of the work, if it is not the queue's own
    #[arg(long)]
    kind: Option<String>,
    /// Groups messages, such as customer:812
    #[arg(long)]
    key: Option<String>,
    /// Due after this long, such as 5m
    #[arg(long, value_parser = duration, allow_hyphen_values = true)]
    delay: Option<Duration>,
    /// Due at this time: RFC 3339, `today`, +10m
    #[arg(long, value_name = "TIME", value_parser = instant::parse, conflicts_with = "delay", allow_hyphen_values = true)]
    at: Option<Timestamp>,
    /// 0 is served first, 3 last [default: 2]
    #[arg(long, value_name = "CLASS")]
    priority: Option<u8>,
    /// A second message with this key is the same message, for the queue's dedup window
    #[arg(long, value_name = "KEY")]
    pub(super) dedup_key: Option<String>,
    /// A header; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// Deliveries in all [default: what the queue says]
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    attempts_max: Option<u32>,
}

fn header(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    pair.ok_or_else(|| format!("`{text}` has no `=`: write NAME=VALUE"))
}

impl Options {
    /// A body with everything but its dedup key.
    pub(super) fn item(&self, body: Raw) -> Item<Raw> {
        let mut item = Item::from(body);
        if let Some(kind) = &self.kind {
            item = item.kind(kind);
        }
        if let Some(key) = &self.key {
            item = item.key(key);
        }
        if let Some(delay) = self.delay {
            item = item.delay(delay);
        }
        if let Some(at) = self.at {
            item = item.at(at);
        }
        if let Some(priority) = self.priority {
            item = item.priority(priority);
        }
        if let Some(attempts) = self.attempts_max {
            item = item.attempts_max(attempts);
        }
        self.headers.iter().fold(item, |item, (name, value)| item.header(name, value))
    }
}

/// The answer to a single message.
#[derive(Debug, Serialize)]
struct Sent {
    sent: u64,
    messages: [Message; 1],
}

#[derive(Debug, Serialize)]
struct Message {
    id: MessageId,
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<MessageId>,
}

/// Sends.
pub(super) async fn run(args: Args, context: &Context) -> Done {
    let Args { queue, body, file, ndjson, envelopes, from_line, options, content_type, dry_run } = args;
    // Lines are meant to be piped; a single body is not guessed.
    let piped = (ndjson && !io::stdin().is_terminal()).then_some(Source::Stdin);
    let Some(source) = Source::of(body, file).or(piped) else {
        let advice = "give it as text, with --file FILE, or `-` for stdin";
        return Err(Failure::usage(format!("there is no body for queue `{queue}`")).advice(advice));
    };
    let pond = open::to_write(context.config.store()).await?;
    let queue = pond.queue(&queue).await?;
    let done = match ndjson {
        true => {
            let form = if envelopes { import::Form::Envelopes } else { import::Form::Bodies };
            import::run(&pond, &queue, source, form, from_line, &options, context).await
        }
        false => {
            let body = source.read(queue.name(), queue.settings().message_limit())?;
            let not_json = if content_type.is_none() { not_json(&body) } else { None };
            if let Some(why) = not_json.as_ref().filter(|_| matches!(body.first(), Some(b'{' | b'['))) {
                note(&format!("hint: the body looks like JSON, but is not: {why}"))?;
            }
            let body = typed(body, content_type);
            let guessed = body.content_type.clone().filter(|_| not_json.is_some());
            let item = options.item(body);
            let item = options.dedup_key.iter().fold(item, |item, key| item.dedup_key(key));
            if dry_run {
                return dry(&queue, item, context);
            }
            let sent = pond.send(&queue, [item]).await?;
            sent.messages
                .first()
                .map_or(Ok(ExitCode::SUCCESS), |message| say(&queue, message, guessed.as_deref(), context))
        }
    };
    pond.close().await;
    done
}

/// `guessed` is the content type of a body that was not named one and is not JSON.
fn say(queue: &Queue<Raw>, message: &SentMessage, guessed: Option<&str>, context: &Context) -> Done {
    let (result, of) = match message.stored {
        Stored::New => ("stored", None),
        Stored::Buffered => ("buffered", None),
        Stored::Duplicate { of } => ("duplicate", Some(of)),
    };
    let sent = Sent { sent: u64::from(of.is_none()), messages: [Message { id: message.id, result, of }] };
    let shown = of.unwrap_or(message.id);
    let kind = guessed.and_then(|kind| kind.split(';').next());
    let kind = kind.map(|kind| format!(" ({kind}: it is not JSON)")).unwrap_or_default();
    context.output.one(&sent, &shown.to_string(), |_| match of {
        None => format!("sent to {}: {shown}{kind}", queue.name()),
        Some(of) => format!("sent before to {}: {of}", queue.name()),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// What can be told without a store is checked where the library checks it: when the message is made.
fn dry(queue: &Queue<Raw>, item: Item<Raw>, context: &Context) -> Done {
    use millpond::Body as _;
    let refused = |error: millpond::BodyError| {
        let tried = format!("cannot send to queue `{}`", queue.name());
        Failure::usage(tried).why(error.to_string()).advice("correct the body, or name its --content-type")
    };
    let encoded = item.body.encode().map_err(refused)?;
    let bytes = encoded.bytes.len();
    let said = serde_json::json!({"dryRun": true, "queue": queue.name(), "bytes": bytes});
    context.output.one(&said, "", |_| format!("would send {bytes} bytes to {}", queue.name()))?;
    Ok(ExitCode::SUCCESS)
}
