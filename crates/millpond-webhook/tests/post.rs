//! A webhook against a server of its own, on loopback, which the guard must be told to allow.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails like the test")]

use std::time::Duration;

use millpond_core::time::Timestamp;
use millpond_webhook::{Guard, Secret, Webhook, signature};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Answers one request with `answer`, and gives the request.
async fn serve(answer: String) -> (u16, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut request, mut chunk) = (Vec::new(), [0; 4096]);
        while !is_whole(&request) {
            let count = stream.read(&mut chunk).await.unwrap();
            assert_ne!(count, 0, "the request ends early");
            request.extend_from_slice(&chunk[..count]);
        }
        // Who has read enough may hang up.
        let _ = stream.write_all(answer.as_bytes()).await;
        String::from_utf8(request).unwrap()
    };
    (port, tokio::spawn(serve))
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
    length.parse::<usize>().unwrap() <= body.len()
}

fn allowing(port: u16) -> Guard {
    Guard::default().allow("127.0.0.1").and_then(|guard| guard.allow(&format!(":{port}"))).unwrap()
}

async fn post(answer: &str) -> (Result<(), millpond_webhook::Failed>, String) {
    let (port, request) = serve(answer.to_owned()).await;
    let url = format!("http://127.0.0.1:{port}/hook?token=tulip");
    let webhook = Webhook::new(&url, allowing(port)).unwrap().signed(SECRET).unwrap();
    let posted = webhook.post("msg-1", Timestamp::from_secs(1_700_000_000), br#"{"a":1}"#.to_vec()).await;
    (posted, request.await.unwrap())
}

#[tokio::test]
async fn a_request_is_signed_and_a_2xx_accepts_it() {
    let (posted, request) = post("HTTP/1.1 204 No Content\r\n\r\n").await;
    assert_eq!(posted, Ok(()));
    let expected = signature(&[Secret::read(SECRET).unwrap()], "msg-1", 1_700_000_000, br#"{"a":1}"#);
    for line in [
        "POST /hook?token=tulip HTTP/1.1".to_owned(),
        "webhook-id: msg-1".to_owned(),
        "webhook-timestamp: 1700000000".to_owned(),
        format!("webhook-signature: {expected}"),
        "content-type: application/json".to_owned(),
    ] {
        assert!(request.lines().any(|found| found == line), "{line}\nis not in\n{request}");
    }
    assert!(request.ends_with("\r\n\r\n{\"a\":1}"), "{request}");
}

#[tokio::test]
async fn everything_else_is_a_failure_that_says_why_without_the_query() {
    for (answer, part, gone, retry_after) in [
        (
            "HTTP/1.1 500 Oh\r\ncontent-length: 5\r\n\r\nno db",
            "500 Internal Server Error: no db",
            false,
            None,
        ),
        ("HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n", "410 Gone", true, None),
        ("HTTP/1.1 429 Slow\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n", "429", false, Some(7)),
        (
            "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n",
            "not followed",
            false,
            None,
        ),
        ("nonsense\r\n\r\n", "cannot be reached", false, None),
    ] {
        let (posted, _) = post(answer).await;
        let failed = posted.unwrap_err();
        assert!(failed.why.contains(part) && !failed.why.contains("tulip"), "{failed}");
        assert_eq!(
            (failed.gone, failed.retry_after),
            (gone, retry_after.map(Duration::from_secs)),
            "{failed}"
        );
    }
}

#[tokio::test]
async fn an_answer_without_end_is_read_up_to_its_limit() {
    let answer =
        format!("HTTP/1.1 500 Oh\r\ntransfer-encoding: chunked\r\n\r\n{}", "5\r\nabcde\r\n".repeat(20_000));
    let (posted, _) = post(&answer).await;
    assert!(posted.unwrap_err().why.len() < 400);
}

#[tokio::test]
async fn a_name_that_leads_inwards_is_not_connected_to() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let only_port = Guard::default().allow(&format!(":{port}")).unwrap();
    let webhook = Webhook::new(&format!("http://localhost:{port}/"), only_port.clone()).unwrap();
    let failed = webhook.post("a", Timestamp::from_secs(1), Vec::new()).await.unwrap_err();
    assert!(failed.why.contains("a loopback address"), "{failed}");
    let nobody_came = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
    assert!(nobody_came.is_err(), "it connected all the same");
    let opened = only_port.allow("localhost").unwrap();
    let webhook = Webhook::new(&format!("http://localhost:{port}/"), opened).unwrap();
    let accepted = async { listener.accept().await.map(drop) };
    let (_, came) = tokio::join!(webhook.post("a", Timestamp::from_secs(1), Vec::new()), accepted);
    came.unwrap();
}
