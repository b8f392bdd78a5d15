//! From how a program ended to what becomes of its message.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use millpond::{CancelCause, Due, Outcome, Verdict};

use super::program::Program;

/// `EX_DATAERR`: the message can never be worked on.
const DEAD_LETTER: i32 = 65;

/// `EX_TEMPFAIL`: not now.
const SNOOZE: i32 = 75;

/// What a shell answers for a program that it may not run.
const NOT_EXECUTABLE: i32 = 126;

/// What a shell answers for a program that is not there.
const NOT_FOUND: i32 = 127;

/// How a run ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// By itself.
    Exited { status: ExitStatus, stderr: String },
    /// After it was told to stop.
    Cancelled { status: Option<ExitStatus>, stderr: String, cause: CancelCause },
    /// It never began.
    NotStarted { error: String },
}

/// That the program could not be run, as it seems, and not that it failed.
pub(super) fn cannot_run(ended: &Ended) -> Option<&str> {
    match ended {
        Ended::Exited { status, .. } => match status.code()? {
            NOT_EXECUTABLE => Some("the program is not executable (exit status 126)"),
            NOT_FOUND => Some("the program was not found (exit status 127)"),
            _ => None,
        },
        Ended::NotStarted { error } => Some(error),
        Ended::Cancelled { .. } => None,
    }
}

/// What became of a message, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Done,
    Failed,
    Snoozed,
    Refused,
    GivenBack,
    Lost,
}

impl Word {
    /// As it is logged.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Word::Done => "done",
            Word::Failed => "failed",
            Word::Snoozed => "snoozed",
            Word::Refused => "refused",
            Word::GivenBack => "given back",
            Word::Lost => "lease lost",
        }
    }
}

/// What becomes of a message. To a program that was told to stop and has no word of its own, an error is what the
/// engine makes of it, by the cause: the attempt failed, or was none.
pub(super) fn of(ended: Ended, program: &Program) -> (Word, Outcome) {
    let (status, stderr, cause) = match ended {
        Ended::Exited { status, stderr } => (Some(status), stderr, None),
        Ended::Cancelled { status, stderr, cause } => (status, stderr, Some(cause)),
        Ended::NotStarted { error } => (None, error, None),
    };
    let code = status.and_then(|status| status.code());
    let signal = status.and_then(|status| status.signal());
    let class = code.map(|code| format!("exit-{code}")).or(signal.map(|signal| format!("signal-{signal}")));
    let outcome = |verdict, error, failed| {
        let class = class.as_deref().map(Into::into);
        Outcome { verdict, error, failed, class }
    };
    let error = text(status, &stderr, cause, &program.literals);
    let (word, outcome) = match code {
        Some(0) => (Word::Done, outcome(Verdict::Ack, None, false)),
        Some(DEAD_LETTER) => {
            let verdict = Verdict::DeadLetter { reason: error.clone() };
            (Word::Refused, outcome(verdict, Some(error), false))
        }
        Some(SNOOZE) => {
            let verdict = Verdict::Snooze { until: Due::In(program.snooze) };
            (Word::Snoozed, outcome(verdict, (!stderr.is_empty()).then_some(error), false))
        }
        _ => {
            let word = if cause == Some(CancelCause::Shutdown) { Word::GivenBack } else { Word::Failed };
            (word, outcome(Verdict::Retry { after: None }, Some(error), true))
        }
    };
    // Whether it counts is for the store to say.
    let word = if cause == Some(CancelCause::LeaseLost) { Word::Lost } else { word };
    (word, outcome)
}

/// Why a run was told to stop, as an operator reads it.
const fn why(cause: CancelCause) -> &'static str {
    match cause {
        CancelCause::Timeout => "timeout",
        CancelCause::LeaseLost => "the lease was lost",
        CancelCause::Shutdown => "the worker stopped",
        _ => "told to stop",
    }
}

/// What the program said, else how it ended. Redacted.
fn text(status: Option<ExitStatus>, stderr: &str, cause: Option<CancelCause>, literals: &[String]) -> String {
    let how = match (status.and_then(|status| status.code()), status.and_then(|status| status.signal())) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => String::new(),
    };
    let parts = match (cause.map(why), stderr) {
        (Some(why), "") => format!("{why}; {how}"),
        (Some(why), said) => format!("{why}; {said}"),
        (None, "") => format!("{how}, nothing on stderr"),
        (None, said) => said.to_owned(),
    };
    let literals: Vec<&str> = literals.iter().map(String::as_str).collect();
    millpond::redact(&parts, &literals)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::work::program::What;

    const SNOOZED: Duration = Duration::from_secs(30);

    fn exited(code: i32, stderr: &str) -> Ended {
        Ended::Exited { status: ExitStatus::from_raw(code << 8), stderr: stderr.into() }
    }

    fn cancelled(cause: CancelCause, status: ExitStatus) -> Ended {
        Ended::Cancelled { status: Some(status), stderr: String::new(), cause }
    }

    fn program() -> Program {
        Program {
            what: What::Words(Vec::new()),
            grace: Duration::ZERO,
            snooze: SNOOZED,
            attempts_max: 5,
            stdout_is_data: true,
            literals: vec!["rose garden".to_owned()],
        }
    }

    #[track_caller]
    fn check(ended: Ended, word: Word, verdict: Verdict, error: Option<&str>) {
        let (found, outcome) = of(ended, &program());
        assert_eq!((found, &outcome.verdict, outcome.error.as_deref()), (word, &verdict, error));
        assert_eq!(outcome.failed, verdict == Verdict::Retry { after: None });
    }

    #[test]
    fn the_exit_status_decides() {
        let retry = Verdict::Retry { after: None };
        check(exited(0, "chatter"), Word::Done, Verdict::Ack, None);
        let reason = "no such user".to_owned();
        check(
            exited(65, "no such user"),
            Word::Refused,
            Verdict::DeadLetter { reason },
            Some("no such user"),
        );
        check(exited(75, ""), Word::Snoozed, Verdict::Snooze { until: Due::In(SNOOZED) }, None);
        check(exited(1, "no route"), Word::Failed, retry.clone(), Some("no route"));
        check(exited(127, ""), Word::Failed, retry, Some("exit status 127, nothing on stderr"));
    }

    #[test]
    fn a_signal_is_a_retry() {
        let killed = Ended::Exited { status: ExitStatus::from_raw(9), stderr: String::new() };
        let error = Some("ended by signal 9, nothing on stderr");
        check(killed, Word::Failed, Verdict::Retry { after: None }, error);
        let error = Some("cannot start it");
        let never = Ended::NotStarted { error: "cannot start it".into() };
        check(never, Word::Failed, Verdict::Retry { after: None }, error);
    }

    #[test]
    fn a_program_that_was_told_to_stop_failed_by_the_cause_unless_it_had_a_word() {
        let terminated = || ExitStatus::from_raw(15);
        let retry = || Verdict::Retry { after: None };
        for (cause, word, error) in [
            (CancelCause::Timeout, Word::Failed, "timeout; ended by signal 15"),
            (CancelCause::Shutdown, Word::GivenBack, "the worker stopped; ended by signal 15"),
            (CancelCause::LeaseLost, Word::Lost, "the lease was lost; ended by signal 15"),
        ] {
            check(cancelled(cause, terminated()), word, retry(), Some(error));
            let done = if word == Word::Lost { word } else { Word::Done };
            check(cancelled(cause, ExitStatus::from_raw(0)), done, Verdict::Ack, None);
        }
    }

    #[test]
    fn secrets_are_masked() {
        let said = "login failed: password=tulip, in the rose garden";
        let (_, outcome) = of(exited(1, said), &program());
        assert_eq!(outcome.error.as_deref(), Some("login failed: password=***, in the ***"));
    }
}
