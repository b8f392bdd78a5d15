//! A measured program that runs: it is asked in lines and answers in JSON.

use std::io::{Read, Seek};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::programs::Program;
use crate::{failed, usage};

/// How long one answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(1_200);

/// How long a program may take to end.
const END_MAX: Duration = Duration::from_secs(20);

pub(crate) struct Process {
    key: &'static str,
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    errors: std::fs::File,
}

impl Process {
    pub(crate) fn start(program: &Program, url: &str) -> millpond::Result<Self> {
        let doing = format!("start {}", program.key);
        let errors = tempfile::tempfile().map_err(|error| failed(&doing, error))?;
        let copy = errors.try_clone().map_err(|error| failed(&doing, error))?;
        let mut child = Command::new(&program.line[0])
            .args(&program.line[1..])
            .arg(url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(copy)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(&doing, format!("cannot start {}: {error}", program.line[0])))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or_else(|| failed(&doing, "it has no output"))?;
        Ok(Self { key: program.key, child, input, output: BufReader::new(output).lines(), errors })
    }

    /// Sends a command and waits for its answer.
    pub(crate) async fn ask(&mut self, command: &str) -> millpond::Result<Value> {
        let doing = format!("ask {}: {command}", self.key);
        let input = self.input.as_mut().ok_or_else(|| failed(&doing, "it has no input"))?;
        if let Err(error) = input.write_all(format!("{command}\n").as_bytes()).await {
            return Err(failed(&doing, self.last_words().unwrap_or_else(|| error.to_string())));
        }
        let line =
            timeout(ANSWER_MAX, self.output.next_line()).await.map_err(|error| failed(&doing, error))?;
        let Some(line) = line.map_err(|error| failed(&doing, error))? else {
            let why = self.last_words().unwrap_or_else(|| "it ended without an answer".to_owned());
            return Err(failed(&doing, why));
        };
        let answer: Value = serde_json::from_str(&line).map_err(|error| failed(&doing, error))?;
        match answer["error"].as_str() {
            Some(why) => Err(failed(&doing, why)),
            None => Ok(answer),
        }
    }

    /// The same, for a number of the answer.
    pub(crate) async fn ask_number(&mut self, command: &str, name: &str) -> millpond::Result<f64> {
        let answer = self.ask(command).await?;
        let missing = || failed("read an answer", format!("`{command}` was answered without `{name}`"));
        answer[name].as_f64().ok_or_else(missing)
    }

    /// Processor time of the program.
    pub(crate) fn cpu(&self) -> Duration {
        self.child.id().map(|pid| usage::cpu(&pid.to_string())).unwrap_or_default()
    }

    /// Ends it, by force if it does not end by itself.
    pub(crate) async fn end(mut self) {
        drop(self.input.take());
        if timeout(END_MAX, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }

    /// The last line that it wrote about an error.
    fn last_words(&mut self) -> Option<String> {
        let mut said = String::new();
        self.errors.rewind().ok()?;
        self.errors.read_to_string(&mut said).ok()?;
        let mut lines = said.lines().filter(|line| !line.trim().is_empty());
        let error = said.lines().find(|line| line.contains("Error") || line.contains("panicked"));
        error.or_else(|| lines.next_back()).map(str::to_owned)
    }
}
