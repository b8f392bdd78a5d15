//! Notices: a dead letter is told by the log and by a signed webhook, once, without anybody asking.

#![allow(clippy::unwrap_used, reason = "what fails in a test fails it")]

mod common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use common::Place;
use millpond_webhook::{Secret, signature};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// How long a test waits for what must come.
const LIMIT: Duration = Duration::from_secs(30);

/// The headers, in lower case, and the body of one request, which is accepted.
fn request(listener: &TcpListener) -> (Vec<String>, Vec<u8>) {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let length = value(&head, "content-length").parse().unwrap();
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    reader.get_mut().write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").unwrap();
    (head, body)
}

fn value<'h>(head: &'h [String], name: &str) -> &'h str {
    let of = |line: &'h String| line.split_once(": ").filter(|(known, _)| known.eq_ignore_ascii_case(name));
    head.iter().find_map(of).map_or("", |(_, value)| value)
}

#[test]
fn a_dead_letter_is_told_by_the_log_and_by_a_signed_webhook() {
    let place = Place::with_queue();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    place.write(
        "millpond.toml",
        &format!(
            "[notify]\nchannels = [\"log\", \"webhook\"]\n\
             webhook.url = \"http://127.0.0.1:{port}/hook\"\nwebhook.secret = \"{SECRET}\"\n\
             [outbound]\nallow = [\"127.0.0.1\", \":{port}\"]\n"
        ),
    );
    let ids = [place.send("1"), place.send("2")];
    let mut worker = place
        .command("work mail")
        .args(["--exec", "echo password=tulip is wrong >&2; exit 65"])
        .spawn()
        .unwrap();
    let (head, body) = request(&listener);
    let (id, timestamp) = (value(&head, "webhook-id"), value(&head, "webhook-timestamp"));
    let signed = signature(&[Secret::read(SECRET).unwrap()], id, timestamp.parse().unwrap(), &body);
    assert_eq!(value(&head, "webhook-signature"), signed, "{head:?}");
    let notice: Value = serde_json::from_slice(&body).unwrap();
    let count = notice["count"].as_u64().unwrap() + notice["heldBack"].as_u64().unwrap();
    assert_eq!(
        (&notice["subject"], &notice["queue"], count),
        (&"dead-letters".into(), &"mail".into(), 2),
        "{notice}"
    );
    assert!(ids.iter().any(|id| notice["example"] == id.as_str()), "{notice}");
    assert_eq!(notice["error"], "password=*** is wrong");
    let lines = BufReader::new(worker.stderr.take().unwrap()).lines().map(Result::unwrap);
    let pid = Pid::from_raw(i32::try_from(worker.id()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert!(worker.wait().unwrap().success());
    let told: Vec<String> =
        lines.filter(|line| line.contains("2 messages of queue `mail` are dead letters")).collect();
    assert_eq!(told.len(), 1, "once: {told:?}");
    assert!(!told[0].contains("tulip"), "{told:?}");
}

#[test]
fn a_channel_that_cannot_work_is_refused_before_work_begins() {
    for (file, why) in [
        ("notify.channels = [\"mail\"]\n", "there is no channel `mail`; known are log, webhook"),
        ("notify.channels = [\"webhook\"]\n", "notify.webhook.url: it is not a URL"),
        (
            "notify.channels = [\"webhook\"]\nnotify.webhook.url = \"http://127.0.0.1/\"\n",
            "notify.webhook.url: 127.0.0.1 is a loopback address; `outbound.allow` can open it",
        ),
        ("notify.webhook.secret = \"tulip\"\n", "notify.webhook.secret: the secret is no base64"),
        ("outbound.allow = [\"what is this\"]\n", "outbound.allow: `what is this` is not a host"),
    ] {
        let place = Place::with_queue();
        place.write("millpond.toml", file);
        let output = place.run("work mail --exec true --drain");
        let text = common::stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{file}: {text}");
        assert!(text.contains(why) && !text.contains("tulip"), "{file}: {text}");
    }
}
