//! Redaction against its vectors, against each rule of its specification, and against hostile texts.

use std::path::Path;

use millpond_core::redact::{INPUT_BYTES_MAX, REDACTED_CHARS_MAX, UNREDACTABLE, redact, summary};
use serde::Deserialize;

#[derive(Deserialize)]
struct Vector {
    r#in: String,
    out: Option<String>,
    #[serde(default)]
    must_contain: Vec<String>,
    #[serde(default)]
    must_not_contain: Vec<String>,
}

/// Redacts `text`, and checks what holds for every result.
fn checked(text: &str) -> String {
    let once = summary(text);
    assert!(once.chars().count() <= REDACTED_CHARS_MAX, "too long: {once}");
    assert_eq!(summary(&once), once, "changed by the second pass; the text was {:.300}", text);
    once
}

fn check(text: &str, expected: &str) {
    assert_eq!(checked(text), expected, "the text was {text}");
}

fn check_unchanged(text: &str) {
    check(text, text);
}

#[test]
fn the_vectors_hold() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/redaction.jsonl");
    let lines = std::fs::read_to_string(path).unwrap();
    for line in lines.lines() {
        let vector: Vector = serde_json::from_str(line).unwrap();
        let result = checked(&vector.r#in);
        if let Some(out) = vector.out {
            assert_eq!(result, out, "the text was {}", vector.r#in);
        }
        for wanted in &vector.must_contain {
            assert!(result.contains(wanted), "{wanted} is missing in {result}");
        }
        for unwanted in &vector.must_not_contain {
            assert!(!result.contains(unwanted), "{unwanted} is left in {result}");
        }
    }
}

#[test]
fn every_separator_is_known() {
    for separator in
        ["=", ":", ":=", "=>", "->", "：", "%3D", "%3d", "%3A", " = ", "\t:=\t", " => ", "　：　", "=="]
    {
        check(&format!("a password{separator}abc b"), &format!("a password{separator}*** b"));
    }
    check_unchanged("password != abc");
    check_unchanged("password abc");
}

#[test]
fn quotes_may_stand_around_the_key() {
    check(r#"{"password": "a b"}"#, r#"{"password": "***"}"#);
    check("{`password`: `a b`}", "{`password`: `***`}");
    check(r#"{\"password\" : \"a b\"}"#, r#"{\"password\" : \"***\"}"#);
    check(r#"{\\\"password\\\":\\\"a b\\\",\\\"id\\\":7}"#, r#"{\\\"password\\\":\\\"***\\\",\\\"id\\\":7}"#);
}

#[test]
fn quoted_values_reach_to_their_quote() {
    check(r#"password='a "b" c' d"#, "password='***' d");
    check(r#"password="a\"b c" d"#, r#"password="***" d"#);
    check(r#"password="a\\" d "e""#, r#"password="***" d "e""#);
    check("password='it''s mine' d", "password='***' d");
    check("password='it's mine", "password='***' mine");
    check(r#"token=""password": "a b""#, r#"token=""password": "***""#);
    check(r#"password=\"a \\\"b\\\" c\" d"#, r#"password=\"***\" d"#);
    check("password=\"a b\nc d", "password=\"***");
    check(r#"password="" d"#, r#"password="" d"#);
    check("password='' d", "password='' d");
    check("password=\"\"\"a b\"\"\" d", "password=\"***\" d");
}

#[test]
fn bracketed_values_reach_to_their_bracket() {
    check(r#"secret={"a":{"b":"}"}} d"#, "secret=*** d");
    check(r#"{"credentials":["a","]b"],"id":7}"#, r#"{"credentials":***,"id":7}"#);
    check("secret: [a, b", "secret: ***");
    check("secret={a}b,c", "secret=***,c");
}

#[test]
fn indented_blocks_go_whole() {
    check("password:\n  abc\n  def\nid: 7", "password:\n  ***\nid: 7");
    check("a:\n  password: |\n    abc\n\n    def\nid: 7", "a:\n  password: |\n    ***\nid: 7");
    check("password: >-\r\n\tabc\r\nid: 7", "password: >-\r\n\t***\r\nid: 7");
    check("'password' =>\n  abc\nid", "'password' =>\n  ***\nid");
    check("password：\n  abc", "password：\n  ***");
    check_unchanged("password:\nabc");
    check_unchanged("password=\n  at main");
    check_unchanged("password:\n\nabc");
}

#[test]
fn cookies_reach_to_the_end_of_the_line() {
    check("Set-Cookie: a=b; Path=/; HttpOnly\r\nHost: x", "Set-Cookie: ***\r\nHost: x");
    check(r#"{"cookie":"a=b; c=d","id":7}"#, r#"{"cookie":"***","id":7}"#);
}

#[test]
fn authorization_is_a_scheme_and_its_credentials() {
    check("Authorization: Bearer abc was refused", "Authorization: *** was refused");
    check("authorization=Basic YWI=, id=7", "authorization=***, id=7");
    check("authorization=abc&id=7", "authorization=***&id=7");
    check(
        r#"Authorization: Digest username="a b", realm="c", nc=1 was refused"#,
        "Authorization: *** was refused",
    );
    check(
        "Authorization: AWS4-HMAC-SHA256 Credential=A/b, SignedHeaders=host;date, Signature=abc\nHost: x",
        "Authorization: ***\nHost: x",
    );
    check(r#"curl -H "Authorization: Bearer abc" http://x"#, r#"curl -H "Authorization: ***" http://x"#);
    check(r#"{"authorization":"Bearer abc","id":7}"#, r#"{"authorization":"***","id":7}"#);
    check("Authorization:\nHost: x", "Authorization:\nHost: x");
}

#[test]
fn plain_values_end_at_delimiters() {
    for end in [" ", ",", ";", "&", ")", "]", "}", "，", "；", "＆", "）", "］", "｝", "　", "%26", "\n"]
    {
        check(&format!("token=abc{end}id"), &format!("token=***{end}id"));
    }
    check(r#"{"url":"http://x/?token=abc","id":7}"#, r#"{"url":"http://x/?token=***","id":7}"#);
    check(r#"{\"url\":\"/?token=abc\",\"id\":7}"#, r#"{\"url\":\"/?token=***\",\"id\":7}"#);
    check("it says 'token=it's' here", "it says 'token=***' here");
    check(r#"password=ab"cd ef"#, "password=*** ef");
    check("?a=1%26token%3Dabc%26b=2", "?a=1%26token%3D***%26b=2");
    check("pin=1234 otp: null", "pin=*** otp: ***");
}

#[test]
fn empty_values_stay_empty() {
    for text in
        ["password=", "password=, id", "password: \nid", "password=&id=7", "(password=)", "password:\n"]
    {
        check_unchanged(text);
    }
}

#[test]
fn keys_are_found_where_texts_glue_them() {
    check(r#""failed\npassword=abc""#, r#""failed\npassword=***""#);
    check(r#""failed\u000apassword=abc""#, r#""failed\u000apassword=***""#);
    check(r"C:\token=abc", r"C:\token=***");
    check("%26password=abc", "%26password=***");
    check("--password=abc", "--password=***");
    check("the api key: abc", "the api key: ***");
    check("Signing Key = abc", "Signing Key = ***");
    check("连接失败，数据库密码：abc。", "连接失败，数据库密码：***");
    check("密码password=abc", "密码password=***");
}

#[test]
fn what_only_resembles_a_key_stays() {
    for text in [
        "InvalidPasswordError: too short",
        "TokenException: expired",
        "at secret.rs:42",
        "at src/token.go:42:7",
        "secret://host",
        "foreign key: users_id",
        "tokens=512",
        "secretary: Alice",
        "spin=1",
        "keyboard=us",
        "token_count=5",
    ] {
        check_unchanged(text);
    }
    check("db.password:1234", "db.password:***");
}

#[test]
fn stand_alone_secrets_go() {
    for secret in ["AKIAIOSFODNN7EXAMPLE", "ghp_16C7e42F292c", "github_pat_11AB", "glpat-x_1", "xoxb-17-a"] {
        check(&format!("sent {secret}, refused"), "sent ***, refused");
    }
    check("sent mp_7_s3cr3t", "sent ***");
    check("sent eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.", "sent ***");
    check("sent Basic dXNlcjpwYXNz", "sent Basic ***");
}

#[test]
fn private_keys_go_even_without_an_end() {
    check("a\n-----BEGIN PRIVATE KEY-----\nMIIB\nQIDA", "a\n***");
    let escaped = r#"{"pem":"-----BEGIN EC PRIVATE KEY-----\nMIIB\n-----END EC PRIVATE KEY-----\n"}"#;
    check(escaped, r#"{"pem":"***\n"}"#);
}

#[test]
fn literals_go_in_every_form() {
    let literals = ["tu/lip 7", ""];
    for form in ["tu/lip 7", "tu%2Flip%207", "tu%2flip+7", "dHUvbGlwIDc=", "dHUvbGlwIDc"] {
        assert_eq!(redact(&format!("dial <{form}> x"), &literals), "dial <***> x");
    }
}

#[test]
fn harmless_literals_cannot_break_the_result() {
    for literal in ["*", "**", " ", "…", " …", "a", "x"] {
        let text = "x a ".repeat(2_000);
        let once = redact(&text, &[literal]);
        assert!(once.chars().count() <= REDACTED_CHARS_MAX);
        assert_eq!(redact(&once, &[literal]), once, "literal {literal:?}");
        assert_ne!(once, UNREDACTABLE);
    }
}

/// Quadratic work on a mebibyte would not finish in the patience of anybody.
#[test]
fn hostile_texts_finish() {
    let parts = [
        "a",
        "=",
        "password=",
        "{",
        "[",
        "\\",
        "\"",
        "'",
        "`",
        "\\\"",
        "'\"",
        " ",
        "\n",
        "eyJ",
        "eyJ.",
        "eyJa-",
        ":",
        "://",
        "a://b:",
        "@",
        "password:\n",
        "password:\n ",
        "password={",
        "password=\"",
        "authorization: a ",
        "authorization: a b=c,",
        "Bearer ",
        "-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----",
        "%",
        "%3D",
        "密码：",
        "-",
        "->",
        ".",
        "api ",
        "api key",
        "AKIA",
        "ghp_",
        "cookie:",
        "error:",
        "aB",
        "password'",
        "password\\",
        "é",
    ];
    for part in parts {
        let mebibyte = part.repeat((1 << 20) / part.len());
        checked(&mebibyte);
        // Without a blank, the cap leaves nothing: this one is seen in full.
        checked(&part.repeat((INPUT_BYTES_MAX - 1) / part.len()));
    }
}

/// Texts of fragments in random order: whatever they are, the result is stable and short, and the function
/// does not give up.
#[test]
fn mixed_texts_are_stable() {
    let fragments = [
        "password",
        "=",
        ":",
        " ",
        "\n",
        "\"",
        "'",
        "\\",
        "\\\"",
        "{",
        "}",
        "[",
        "]",
        ",",
        "&",
        "abc",
        "***",
        "…",
        " …",
        "Authorization",
        "Bearer ",
        "cookie",
        "token",
        "://",
        "@",
        "u:p",
        "%3D",
        "%26",
        "eyJa",
        ".b",
        "key",
        "api",
        "->",
        "=>",
        "|",
        "  ",
        "密码",
        "：",
        "secret.rs:4",
        "Error",
        "ghp_x",
        "x",
        "-----BEGIN PRIVATE KEY-----",
        "7",
    ];
    let mut seed = 7_u64;
    let mut below = |limit: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % limit
    };
    for round in 0..4_000 {
        let lead = if round % 32 == 0 { 1_960 + below(40) } else { 0 };
        let length = 1 + below(24);
        let tail: String = (0..length).map(|_| fragments[below(fragments.len())]).collect();
        let text = format!("{}{tail}", "w ".repeat(lead / 2));
        assert_ne!(checked(&text), UNREDACTABLE, "{text}");
        for secret in ["password=hunter2", r#""password": "my hunter2 x""#, "'password': 'my hunter2 x'"] {
            let leak = format!("{tail}, {secret}, b");
            assert!(!checked(&leak).contains("hunter"), "{leak}");
        }
    }
}
