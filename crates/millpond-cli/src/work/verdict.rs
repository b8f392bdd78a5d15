//! From how a program ended to what becomes of its message.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use millpond::{Due, Outcome, Verdict};

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
    Cancelled { status: Option<ExitStatus>, stderr: String, why: &'static str },
    /// It never began.
    NotStarted { error: String },
}

/// That the shell could not run the program, as it seems.
pub(super) fn cannot_run(ended: &Ended) -> Option<&'static str> {
    let Ended::Exited { status, .. } = ended else { return None };
    match status.code()? {
        NOT_EXECUTABLE => Some("the program is not executable (exit status 126)"),
        NOT_FOUND => Some("the program was not found (exit status 127)"),
        _ => None,
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
        }
    }
}

/// What becomes of a message. `stopping`: the program was told to stop because the worker stops, which is no
/// fault of the message.
pub(super) fn of(ended: Ended, program: &Program, stopping: bool) -> (Word, Outcome) {
    let (status, stderr, cancelled) = match ended {
        Ended::Exited { status, stderr } => (Some(status), stderr, None),
        Ended::Cancelled { status, stderr, why } => (status, stderr, Some(why)),
        Ended::NotStarted { error } => (None, error, None),
    };
    let code = status.and_then(|status| status.code());
    let signal = status.and_then(|status| status.signal());
    let class = code.map(|code| format!("exit-{code}")).or(signal.map(|signal| format!("signal-{signal}")));
    let outcome = |verdict, error, failed| {
        let class = class.as_deref().map(Into::into);
        Outcome { verdict, error, failed, class }
    };
    let error = text(status, &stderr, cancelled, &program.literals);
    match code {
        Some(0) => (Word::Done, outcome(Verdict::Ack, None, false)),
        Some(DEAD_LETTER) => {
            let verdict = Verdict::DeadLetter { reason: error.clone() };
            (Word::Refused, outcome(verdict, Some(error), false))
        }
        Some(SNOOZE) => {
            let verdict = Verdict::Snooze { until: Due::In(program.snooze) };
            (Word::Snoozed, outcome(verdict, (!stderr.is_empty()).then_some(error), false))
        }
        _ if stopping => {
            let verdict = Verdict::Snooze { until: Due::In(Duration::ZERO) };
            (Word::GivenBack, outcome(verdict, Some("the worker stopped".to_owned()), false))
        }
        _ => (Word::Failed, outcome(Verdict::Retry { after: None }, Some(error), true)),
    }
}

/// What the program said, else how it ended. Redacted.
fn text(status: Option<ExitStatus>, stderr: &str, cancelled: Option<&str>, literals: &[String]) -> String {
    let how = match (status.and_then(|status| status.code()), status.and_then(|status| status.signal())) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => String::new(),
    };
    let parts = match (cancelled, stderr) {
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
    use super::*;

    const SNOOZED: Duration = Duration::from_secs(30);

    fn exited(code: i32, stderr: &str) -> Ended {
        Ended::Exited { status: ExitStatus::from_raw(code << 8), stderr: stderr.into() }
    }

    fn cancelled(status: ExitStatus) -> Ended {
        Ended::Cancelled { status: Some(status), stderr: String::new(), why: "told to stop" }
    }

    fn program() -> Program {
        let literals = vec!["rose garden".to_owned()];
        let (command, grace) = (String::new(), Duration::ZERO);
        Program { command, grace, timeout: None, snooze: SNOOZED, stdout_is_data: true, literals }
    }

    #[track_caller]
    fn check(ended: Ended, stopping: bool, word: Word, verdict: Verdict, error: Option<&str>) {
        let (found, outcome) = of(ended, &program(), stopping);
        assert_eq!((found, outcome.verdict, outcome.error.as_deref()), (word, verdict, error));
        assert_eq!(outcome.failed, word == Word::Failed);
    }

    #[test]
    fn the_exit_status_decides() {
        let retry = Verdict::Retry { after: None };
        check(exited(0, "chatter"), false, Word::Done, Verdict::Ack, None);
        let reason = "no such user".to_owned();
        check(
            exited(65, "no such user"),
            false,
            Word::Refused,
            Verdict::DeadLetter { reason },
            Some("no such user"),
        );
        check(exited(75, ""), false, Word::Snoozed, Verdict::Snooze { until: Due::In(SNOOZED) }, None);
        check(exited(1, "no route"), false, Word::Failed, retry.clone(), Some("no route"));
        check(exited(127, ""), false, Word::Failed, retry, Some("exit status 127, nothing on stderr"));
    }

    #[test]
    fn a_signal_is_a_retry() {
        let killed = Ended::Exited { status: ExitStatus::from_raw(9), stderr: String::new() };
        let error = Some("ended by signal 9, nothing on stderr");
        check(killed, false, Word::Failed, Verdict::Retry { after: None }, error);
        let error = Some("cannot start it");
        let never = Ended::NotStarted { error: "cannot start it".into() };
        check(never, false, Word::Failed, Verdict::Retry { after: None }, error);
    }

    #[test]
    fn a_stop_of_the_worker_gives_the_attempt_back_unless_the_program_had_a_word() {
        let terminated = || ExitStatus::from_raw(15);
        let error = Some("told to stop; ended by signal 15");
        check(cancelled(terminated()), false, Word::Failed, Verdict::Retry { after: None }, error);
        let back = Verdict::Snooze { until: Due::In(Duration::ZERO) };
        check(cancelled(terminated()), true, Word::GivenBack, back, Some("the worker stopped"));
        check(cancelled(ExitStatus::from_raw(0)), true, Word::Done, Verdict::Ack, None);
    }

    #[test]
    fn secrets_are_masked() {
        let said = "login failed: password=tulip, in the rose garden";
        let (_, outcome) = of(exited(1, said), &program(), false);
        assert_eq!(outcome.error.as_deref(), Some("login failed: password=***, in the ***"));
    }
}
