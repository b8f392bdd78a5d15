//! `millpond redact`: a text as it would be stored.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use millpond_core::redact::INPUT_BYTES_MAX;

use crate::Context;
use crate::exit::{Done, Failure};

/// Which text.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The input is one text, and is treated as an error's text is before it is stored: the first 64 KiB are looked at,
secrets become ***, and 2000 characters are kept. With --lines each line is a text of its own, so that a log of
any length goes through in little memory; a secret that goes over several lines, such as a private key, is then
not seen as one.

Masked are passwords in URLs, values of keys such as password or api_key, bearer tokens, private keys, and what
redact.literals and the URL of the store name. Bodies of messages are never redacted: they are stored as sent.

Examples:
  millpond redact error.txt
  kubectl logs app | millpond redact --lines > app.log
  MILLPOND_REDACT__LITERALS=tulip millpond redact error.txt")]
pub(crate) struct Args {
    /// The file [default: stdin, also as `-`]
    file: Option<PathBuf>,
    /// Each line is a text of its own
    #[arg(long)]
    lines: bool,
}

/// Redacts.
pub(crate) fn run(args: &Args, context: &Context) -> Done {
    let literals = context.config.literals();
    let literals: Vec<&str> = literals.iter().map(String::as_str).collect();
    let name = args.file.as_deref().filter(|path| *path != Path::new("-"));
    let mut reader: Box<dyn BufRead> = match name {
        Some(path) => Box::new(BufReader::new(File::open(path).map_err(|error| unreadable(name, &error))?)),
        None => Box::new(io::stdin().lock()),
    };
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    let end = if args.lines { Some(b'\n') } else { None };
    while let Some(text) = text(&mut reader, end).map_err(|error| unreadable(name, &error))? {
        writeln!(stdout, "{}", millpond::redact(&text, &literals))?;
        // Whoever follows a log sees each line when it comes.
        if args.lines {
            stdout.flush()?;
        }
    }
    stdout.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The next text, up to `end` or the end of the input; as much of it as is looked at, and a little more, so that it
/// is seen that it was cut. `None` at the end of the input.
fn text(reader: &mut dyn BufRead, end: Option<u8>) -> io::Result<Option<String>> {
    let most = INPUT_BYTES_MAX as u64 + 8;
    let mut bytes = Vec::new();
    let read = match end {
        Some(end) => (&mut *reader).take(most).read_until(end, &mut bytes)?,
        None => (&mut *reader).take(most).read_to_end(&mut bytes)?,
    };
    if read == 0 {
        return Ok(None);
    }
    let has_ended = end.is_some() && bytes.last().copied() == end;
    if !has_ended && read as u64 == most {
        skip(reader, end)?;
    }
    let text = String::from_utf8_lossy(&bytes);
    Ok(Some(text.strip_suffix('\n').map(str::to_owned).unwrap_or_else(|| text.into_owned())))
}

/// Reads on to the end of the text, so that whoever writes it is not stopped.
fn skip(reader: &mut dyn BufRead, end: Option<u8>) -> io::Result<()> {
    loop {
        let buffer = reader.fill_buf()?;
        let (length, has_ended) = match end.and_then(|end| buffer.iter().position(|byte| *byte == end)) {
            Some(place) => (place + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        reader.consume(length);
        if has_ended {
            return Ok(());
        }
    }
}

fn unreadable(name: Option<&Path>, error: &io::Error) -> Failure {
    let name = name.map_or_else(|| "stdin".to_owned(), |path| path.display().to_string());
    let failure = Failure::usage(format!("cannot read {name}")).why(error.to_string());
    failure.advice("check the path, and the rights on it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_ends_where_it_ends() {
        let input = format!("{}\nshort\n", "x".repeat(3 * INPUT_BYTES_MAX));
        let mut reader = input.as_bytes();
        let first = text(&mut reader, Some(b'\n')).unwrap().unwrap();
        assert!(INPUT_BYTES_MAX < first.len() && first.len() < 2 * INPUT_BYTES_MAX);
        assert_eq!(text(&mut reader, Some(b'\n')).unwrap().as_deref(), Some("short"));
        assert_eq!(text(&mut reader, Some(b'\n')).unwrap(), None);
        let mut reader = input.as_bytes();
        text(&mut reader, None).unwrap().unwrap();
        assert_eq!(text(&mut reader, None).unwrap(), None, "it was one text");
    }

    #[test]
    fn what_is_no_text_is_replaced_and_an_empty_line_stays() {
        let mut reader: &[u8] = b"a\xffb\n\n";
        assert_eq!(text(&mut reader, Some(b'\n')).unwrap().as_deref(), Some("a\u{fffd}b"));
        assert_eq!(text(&mut reader, Some(b'\n')).unwrap().as_deref(), Some(""));
        assert_eq!(text(&mut reader, Some(b'\n')).unwrap(), None);
    }
}
