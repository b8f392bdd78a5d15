//! `millpond explain`: the page of a code, a reason or a cause, as it stands in `docs/errors/` or `docs/causes/`.

mod page;
mod pages;

use std::process::ExitCode;

use millpond::text::nearest;
use serde::Serialize;

use crate::codes;
use crate::exit::{Done, Exit, Failure};
use crate::output::{Column, Output};
use page::Page;
use pages::{Entry, Kind, PAGES};

/// Which word.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  millpond explain                   every code, reason and cause, a line each
  millpond explain lease-lost
  millpond explain OUTBOX_STALLED
  millpond explain exhausted -o json")]
pub(crate) struct Args {
    /// A code that an error ends with, a reason of a dead letter, a cause that `why` names, or a hint of `doctor`
    #[arg(value_name = "CODE")]
    code: Option<String>,
}

/// A page as programs read it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    code: &'static str,
    kind: Kind,
    title: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    http_status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shown_by: Option<&'a str>,
    when_it_happens: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    example: Option<&'a str>,
    what_to_do: &'a [String],
}

/// A page as a line.
#[derive(Debug, Serialize)]
struct Line {
    code: &'static str,
    kind: Kind,
    title: String,
}

const COLUMNS: [Column<Line>; 3] = [
    Column::new("code", |row, _| row.code.to_owned()),
    Column::new("kind", |row, _| row.kind.as_str().to_owned()),
    Column::whole("what it means", |row, _| row.title.clone()),
];

/// Shows a page, or all of them with a line each.
pub(crate) fn run(args: Args, output: &Output) -> Done {
    let Some(word) = args.code else {
        let lines = PAGES.iter().map(|entry| Line {
            code: entry.code,
            kind: entry.kind,
            title: Page::read(entry.text).title,
        });
        output.list(&lines.collect::<Vec<_>>(), &COLUMNS, "")?;
        return Ok(ExitCode::SUCCESS);
    };
    let entry = find(&word).ok_or_else(|| unknown(&word))?;
    let (page, facts) = (Page::read(entry.text), codes::find(entry.code));
    let facts = facts.filter(|_| entry.kind == Kind::Error);
    let shown = Shown {
        code: entry.code,
        kind: entry.kind,
        title: &page.title,
        retry: facts.map(|facts| facts.retry.as_str()),
        exit_code: facts.map(|facts| facts.exit as u8),
        http_status: facts.and_then(|facts| facts.status),
        shown_by: page.fact("Shown by"),
        when_it_happens: page.when_unfolded(),
        example: page.example.as_deref(),
        what_to_do: &page.steps,
    };
    output.one(&shown, entry.code, |_| page.plain())?;
    Ok(ExitCode::SUCCESS)
}

fn find(word: &str) -> Option<&'static Entry> {
    PAGES.iter().find(|entry| entry.code.eq_ignore_ascii_case(word.trim()))
}

fn unknown(word: &str) -> Failure {
    let known: Vec<&str> = PAGES.iter().map(|entry| entry.code).collect();
    let failure = Failure::new(Exit::NotFound, "not-found", format!("there is no page for `{word}`"));
    let near = nearest(&word.to_lowercase(), &known).or_else(|| nearest(&word.to_uppercase(), &known));
    let failure = match near {
        Some(near) => failure.why(format!("did you mean `{near}`?")),
        None => failure,
    };
    failure.advice("`millpond explain` lists every code")
}
