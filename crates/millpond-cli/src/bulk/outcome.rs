//! What became of a bulk action, and how the command ends.

use std::process::ExitCode;

use millpond::query::Subject;
use millpond::{Changed, Code, MessageId};
use serde::Serialize;

use super::{Action, One};
use crate::Context;
use crate::exit::{Done, Exit, Failure};
use crate::output::note;

/// New messages that are named in the answer.
const MESSAGES_SHOWN_MAX: usize = 10_000;

/// What was done, in the words of the HTTP API.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Outcome {
    matched: u64,
    done: u64,
    /// Running: their workers are told, and decide how it ends.
    asked: u64,
    remaining: u64,
    skipped: Skipped,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    messages: Vec<Again>,
    /// What ended it before everything was tried.
    #[serde(skip)]
    stopped: Option<Failure>,
    /// Why the last one was skipped.
    #[serde(skip)]
    last: Option<(MessageId, Changed)>,
}

/// Rows that somebody else changed meanwhile, by cause.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Skipped {
    already_retried: u64,
    already_settled: u64,
    wrong_state: u64,
    not_found: u64,
}

/// A dead letter with its new life.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Again {
    failed_job_id: MessageId,
    job_id: MessageId,
}

impl Skipped {
    fn sum(&self) -> u64 {
        self.already_retried + self.already_settled + self.wrong_state + self.not_found
    }

    fn text(&self) -> String {
        let causes = [
            (self.already_retried, "sent again already"),
            (self.already_settled, "settled already"),
            (self.wrong_state, "in a state in which it cannot be done"),
            (self.not_found, "not there any more"),
        ];
        let there = causes.iter().filter(|(count, _)| 0 < *count);
        there.map(|(count, cause)| format!("{count} {cause}")).collect::<Vec<_>>().join(", ")
    }
}

impl Outcome {
    /// Of so many rows, none of which was tried yet.
    pub(super) fn of(matched: usize) -> Self {
        Self { matched: matched as u64, remaining: matched as u64, ..Self::default() }
    }

    /// What became of one part.
    pub(super) fn add(&mut self, ids: &[MessageId], changed: &[One]) {
        self.remaining -= ids.len() as u64;
        for (id, One { changed, new_id }) in ids.iter().zip(changed) {
            let count = match changed {
                Changed::Done => &mut self.done,
                Changed::Asked => &mut self.asked,
                Changed::AlreadyRetried(_) => &mut self.skipped.already_retried,
                Changed::AlreadySettled => &mut self.skipped.already_settled,
                Changed::WrongState(_) => &mut self.skipped.wrong_state,
                Changed::NotFound => &mut self.skipped.not_found,
            };
            *count += 1;
            match changed {
                Changed::Done => {
                    let again = new_id.map(|job_id| Again { failed_job_id: *id, job_id });
                    self.messages.extend(again.filter(|_| self.messages.len() < MESSAGES_SHOWN_MAX));
                }
                Changed::Asked => {}
                _ => self.last = Some((*id, *changed)),
            }
        }
    }

    /// It ends here.
    pub(super) fn stop(&mut self, why: Failure) {
        self.stopped = Some(why);
    }

    /// Prints it, and says how the command ends. `named`: the rows were named by their ids.
    pub(super) fn end(mut self, action: &Action<'_>, named: bool, context: &Context) -> Done {
        let nothing_done = self.done + self.asked == 0;
        if let (true, true, Some((id, changed))) = (named, nothing_done, self.last) {
            return Err(none_of_them(action, self.matched, id, changed));
        }
        self.print(action, context)?;
        if let Some(why) = self.stopped.take() {
            let tried =
                format!("{} {} of {}", action.past, self.done + self.asked, action.count(self.matched));
            return Err(stopped_short(&tried, self.remaining, &why));
        }
        match self.skipped.sum() {
            0 => Ok(ExitCode::SUCCESS),
            skipped => {
                note(&format!("skipped {skipped}: {}", self.skipped.text()))?;
                Ok(Exit::Partly.code())
            }
        }
    }

    fn print(&self, action: &Action<'_>, context: &Context) -> Result<(), Failure> {
        let new: Vec<String> = self.messages.iter().map(|again| again.job_id.to_string()).collect();
        context.output.one(self, &new.join("\n"), |_| match (self.matched, self.asked) {
            (0, _) => format!("no {}s match", action.one),
            (_, 0) => format!("{} {}", action.past, action.count(self.done)),
            (_, asked) => {
                let done = action.count(self.done);
                format!("{} {done}; {asked} running: their workers are told to stop", action.past)
            }
        })?;
        if self.messages.len() == MESSAGES_SHOWN_MAX && (MESSAGES_SHOWN_MAX as u64) < self.done {
            note(&format!("only the first {MESSAGES_SHOWN_MAX} new ids are shown"))?;
        }
        Ok(())
    }
}

/// The end of a change that was stopped between two transactions. `done`: `purged 500 of 1200 messages`.
pub(crate) fn stopped_short(done: &str, left: u64, why: &Failure) -> Failure {
    let (exit, cause) = match why.code() {
        "interrupted" => (Exit::Interrupted, "by a signal, between two transactions".to_owned()),
        _ => (Exit::Partly, why.to_string().lines().collect::<Vec<_>>().join("; ")),
    };
    let failure = Failure::new(exit, why.code(), format!("{done}, then stopped")).why(cause);
    failure.advice(format!("repeat it for the {left} that are left: none is done twice"))
}

/// The error where rows were named and nothing could be done to any of them.
fn none_of_them(action: &Action<'_>, named: u64, id: MessageId, changed: Changed) -> Failure {
    let what =
        if named == 1 { format!("{} `{id}`", action.one) } else { format!("any of {named} {}s", action.one) };
    let tried = format!("cannot {} {what}", action.infinitive);
    let gone = Code::MessageNotFound;
    let (exit, code, why, advice) = match changed {
        Changed::NotFound => {
            (Exit::NotFound, gone.as_str(), format!("`{id}` is not there"), gone.advice().to_owned())
        }
        Changed::AlreadyRetried(new) => {
            let why = format!("`{id}` was sent again already, as `{new}`");
            let advice = format!("look at its new life with `millpond message get {new}`");
            (Exit::Conflict, "already-retried", why, advice)
        }
        Changed::WrongState(state) if action.subject == Subject::DeadLetter => {
            let why = format!("the message is {}, and no dead letter", state.as_str());
            (Exit::NotFound, gone.as_str(), why, gone.advice().to_owned())
        }
        Changed::WrongState(state) => {
            let why = format!("`{id}` is {}", state.as_str());
            (Exit::Conflict, "wrong-state", why, Code::AlreadySettled.advice().to_owned())
        }
        _ => {
            let (settled, why) = (Code::AlreadySettled, "it is done, dead or cancelled already".to_owned());
            (Exit::Conflict, settled.as_str(), why, settled.advice().to_owned())
        }
    };
    Failure::new(exit, code, tried).why(why).advice(advice)
}
