//! Bodies: encoded once by the sender, decoded once before the handler.
//!
//! Everything that serde can write and read is a body, as JSON. [`Raw`] is a body that nobody looks into.

mod path;
mod probe;

use millpond_core::message::{BYTES, JSON};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

/// Levels of a JSON body: lists and maps inside each other.
pub const DEPTH_MAX: usize = 128;

/// An encoded body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// `None` is JSON.
    pub content_type: Option<String>,
    /// What is stored.
    pub bytes: Vec<u8>,
}

/// Why a body cannot be encoded or decoded: the place in it, and the problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct BodyError {
    path: String,
    problem: String,
}

impl BodyError {
    /// A problem with the body as a whole.
    pub fn new(problem: impl Into<String>) -> Self {
        Self::at("body", problem)
    }

    /// A problem at one place of the body, like `items[3].rate`.
    pub fn at(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { path: path.into(), problem: problem.into() }
    }

    /// Where it is.
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// What a message carries.
///
/// Implemented for every type that serde can write and read, as JSON, and for [`Raw`].
///
/// ```
/// use millpond_engine::body::Body;
///
/// let error = vec![1.5, f64::NAN].encode().unwrap_err();
/// assert_eq!(error.to_string(), "[1]: NaN has no JSON form");
/// ```
pub trait Body: Sized + Send + 'static {
    /// The form in which it is stored.
    ///
    /// # Errors
    ///
    /// The value has no such form.
    fn encode(&self) -> Result<Encoded, BodyError>;

    /// Reads the stored form.
    ///
    /// # Errors
    ///
    /// The bytes are no such body.
    fn decode(content_type: Option<&str>, bytes: &[u8]) -> Result<Self, BodyError>;
}

impl<T: Serialize + DeserializeOwned + Send + 'static> Body for T {
    fn encode(&self) -> Result<Encoded, BodyError> {
        let bytes = probe::encode(self)?;
        Ok(Encoded { content_type: None, bytes })
    }

    fn decode(content_type: Option<&str>, bytes: &[u8]) -> Result<Self, BodyError> {
        match content_type {
            Some(other) if !is_json(content_type) => {
                Err(BodyError::new(format!("its content type `{other}` is not JSON")))
            }
            _ => decode_json(bytes),
        }
    }
}

/// Bytes with a content type, which nobody looks into on the way.
///
/// ```
/// use millpond_engine::body::{Body, Raw};
///
/// let photo = Raw::new("image/png", [0x89, b'P', b'N', b'G']);
/// let encoded = photo.encode().unwrap();
/// assert_eq!(encoded.content_type.as_deref(), Some("image/png"));
/// assert_eq!(encoded.bytes, photo.bytes);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raw {
    /// `None` is JSON, and then the bytes must be well-formed.
    pub content_type: Option<String>,
    /// As they are stored.
    pub bytes: Vec<u8>,
}

impl Raw {
    /// Bytes of a named type.
    pub fn new(content_type: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { content_type: Some(content_type.into()), bytes: bytes.into() }
    }

    /// Bytes about which nothing is known.
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self::new(BYTES, bytes)
    }

    /// JSON that was encoded elsewhere.
    pub fn json(text: impl Into<Vec<u8>>) -> Self {
        Self { content_type: None, bytes: text.into() }
    }
}

impl Body for Raw {
    fn encode(&self) -> Result<Encoded, BodyError> {
        well_formed(self.content_type.as_deref(), &self.bytes)?;
        Ok(Encoded { content_type: self.content_type.clone(), bytes: self.bytes.clone() })
    }

    fn decode(content_type: Option<&str>, bytes: &[u8]) -> Result<Self, BodyError> {
        Ok(Self { content_type: content_type.map(str::to_owned), bytes: bytes.to_vec() })
    }
}

/// Whether a body is what its content type says, as far as that can be told without its type: JSON is parsed,
/// anything else is taken as it is. Asked before a handler is looked for, so that poison is not mistaken for
/// a missing handler.
///
/// # Errors
///
/// The body is said to be JSON and is not, is deeper than [`DEPTH_MAX`], or has half of a surrogate pair: the
/// grammar of JSON allows that, and hardly anything that reads JSON does.
pub fn well_formed(content_type: Option<&str>, bytes: &[u8]) -> Result<(), BodyError> {
    if !is_json(content_type) {
        return Ok(());
    }
    // serde_json passes over what is ignored without looking at its encoding.
    let text = std::str::from_utf8(bytes).map_err(|why| BodyError::new(why.to_string()))?;
    not_too_deep(bytes)?;
    serde_json::from_str::<IgnoredAny>(text).map_err(|why| BodyError::new(why.to_string()))?;
    match half_a_pair(bytes) {
        None => Ok(()),
        Some(place) => {
            Err(BodyError::new(format!("half of a surrogate pair {}", line_and_column(bytes, place))))
        }
    }
}

/// Where an escape stands that names half a character. The text is JSON, so every backslash is in a string.
fn half_a_pair(json: &[u8]) -> Option<usize> {
    let unit = |place: usize| {
        let digits = json.get(place..place + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let mut at = 0;
    while let Some(next) = json[at..].iter().position(|byte| *byte == b'\\') {
        let place = at + next;
        at = match (unit(place), unit(place + 6)) {
            (None, _) => place + 2,
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => place + 12,
            (Some(0xd800..=0xdfff), _) => return Some(place),
            (Some(_), _) => place + 6,
        };
    }
    None
}

/// As serde_json names a place.
fn line_and_column(text: &[u8], place: usize) -> String {
    let lines = text[..place].iter().filter(|byte| **byte == b'\n').count();
    let begins = text[..place].iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    format!("at line {} column {}", lines + 1, place - begins + 1)
}

/// Whether a content type is JSON; none is.
fn is_json(content_type: Option<&str>) -> bool {
    let Some(content_type) = content_type else { return true };
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case(JSON) || essence.to_ascii_lowercase().ends_with("+json")
}

fn decode_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BodyError> {
    not_too_deep(bytes)?;
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    reader.disable_recursion_limit();
    let failed = match T::deserialize(&mut reader) {
        Ok(body) => match reader.end() {
            Ok(()) => return Ok(body),
            Err(trailing) => trailing,
        },
        Err(failed) => failed,
    };
    Err(locate::<T>(bytes).unwrap_or_else(|| BodyError::new(failed.to_string())))
}

/// Decodes again, slower, to learn where it fails.
fn locate<T: DeserializeOwned>(bytes: &[u8]) -> Option<BodyError> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    reader.disable_recursion_limit();
    let error = serde_path_to_error::deserialize::<_, T>(&mut reader).err()?;
    match error.path().to_string().as_str() {
        "." => Some(BodyError::new(error.inner().to_string())),
        path => Some(BodyError::at(path, error.inner().to_string())),
    }
}

/// Refuses what would use up the stack.
fn not_too_deep(bytes: &[u8]) -> Result<(), BodyError> {
    // Nearly every body has too few brackets to be deep, and counting them is quick.
    let brackets = bytes.iter().filter(|byte| **byte | 0x20 == b'{').count();
    if brackets <= DEPTH_MAX || depth(bytes) <= DEPTH_MAX {
        return Ok(());
    }
    Err(BodyError::new(too_deep()))
}

fn too_deep() -> String {
    format!("it is deeper than {DEPTH_MAX} levels")
}

/// The deepest level of brackets outside strings.
fn depth(bytes: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string) = (0_usize, 0, false);
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'\\' if in_string => drop(rest.next()),
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use serde::Deserialize;
    use serde_json::Value;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Order {
        note: Option<String>,
        items: Vec<Line>,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Line {
        rate: f64,
        kind: Kind,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Kind {
        Plain,
        Scaled(f64),
        Pair(f32, f32),
        Named { by: Option<f64> },
    }

    fn line(rate: f64, kind: Kind) -> Line {
        Line { rate, kind }
    }

    fn order(last: Line) -> Order {
        Order { note: None, items: vec![line(1.0, Kind::Plain), last] }
    }

    #[track_caller]
    fn refused(body: impl Body, expected: &str) {
        assert_eq!(body.encode().unwrap_err().to_string(), expected);
    }

    #[track_caller]
    fn undecodable<T: Body + std::fmt::Debug>(text: &str, expected: &str) {
        assert_eq!(T::decode(None, text.as_bytes()).unwrap_err().to_string(), expected);
    }

    fn nested(levels: usize) -> Value {
        (0..levels).fold(Value::Null, |inner, _| Value::Array(vec![inner]))
    }

    #[test]
    fn what_is_encoded_comes_back() {
        let sent = order(line(2.5, Kind::Named { by: Some(1.0) }));
        let encoded = sent.encode().unwrap();
        assert_eq!(encoded.content_type, None);
        assert_eq!(Order::decode(None, &encoded.bytes).unwrap(), sent);
    }

    #[test]
    fn numbers_without_json_form_are_refused_with_their_path() {
        refused(order(line(f64::NAN, Kind::Plain)), "items[1].rate: NaN has no JSON form");
        refused(order(line(0.0, Kind::Scaled(f64::INFINITY))), "items[1].kind.Scaled: inf has no JSON form");
        let pair = Kind::Pair(0.0, f32::NEG_INFINITY);
        refused(order(line(0.0, pair)), "items[1].kind.Pair[1]: -inf has no JSON form");
        let named = Kind::Named { by: Some(f64::NAN) };
        refused(order(line(0.0, named)), "items[1].kind.Named.by: NaN has no JSON form");
        refused(f64::NAN, "body: NaN has no JSON form");
        refused(
            HashMap::from([("a b", f64::NAN)].map(|(k, v)| (k.to_owned(), v))),
            "[\"a b\"]: NaN has no JSON form",
        );
    }

    #[test]
    fn keys_that_are_no_text_are_refused_with_their_path() {
        refused(BTreeMap::from([(7, 1)]), "body: the map key 7 is no text");
        refused(vec![BTreeMap::from([(true, 1)])], "[0]: the map key true is no text");
        refused(BTreeMap::from([((1, 2), 1)]), "body: a map key is no text");
        BTreeMap::from([("a".to_owned(), 1)]).encode().unwrap();
        BTreeMap::from([('a', None::<u8>)]).encode().unwrap();
    }

    #[test]
    fn a_body_has_at_most_128_levels_both_ways() {
        let encoded = nested(DEPTH_MAX).encode().unwrap();
        Value::decode(None, &encoded.bytes).unwrap();
        let path = "[0]".repeat(DEPTH_MAX);
        refused(nested(DEPTH_MAX + 1), &format!("{path}: it is deeper than 128 levels"));
        let text = "[".repeat(100_000);
        undecodable::<Value>(&text, "body: it is deeper than 128 levels");
        well_formed(None, text.as_bytes()).unwrap_err();
        well_formed(None, format!("\"{text}\"").as_bytes()).unwrap();
        well_formed(None, format!("[{}0]", "[],".repeat(1_000)).as_bytes()).unwrap();
    }

    #[test]
    fn decoding_names_the_place() {
        let wrong = r#"{"note":null,"items":[{"rate":"x","kind":"Plain"}]}"#;
        undecodable::<Order>(
            wrong,
            "items[0].rate: invalid type: string \"x\", expected f64 at line 1 column 33",
        );
        undecodable::<u8>("1 2", "body: trailing characters at line 1 column 3");
        undecodable::<u8>("", "body: EOF while parsing a value at line 1 column 0");
        let other = u8::decode(Some("image/png"), b"1").unwrap_err();
        assert_eq!(other.to_string(), "body: its content type `image/png` is not JSON");
        assert_eq!(u8::decode(Some("application/json; charset=utf-8"), b"1").unwrap(), 1);
        assert_eq!(u8::decode(Some("application/cloudevents+json"), b"1").unwrap(), 1);
    }

    #[test]
    fn only_json_must_be_well_formed() {
        well_formed(Some(BYTES), b"{").unwrap();
        for poison in [&b"{"[..], b"", b"\"\xff\"", b"1 2", b"nul"] {
            well_formed(None, poison).unwrap_err();
        }
        Raw::json(*b"{").encode().unwrap_err();
        assert_eq!(Raw::bytes(*b"{").encode().unwrap().bytes, b"{");
    }

    #[test]
    fn half_of_a_surrogate_pair_is_pointed_at() {
        let refused = |text: &str| well_formed(None, text.as_bytes()).unwrap_err().to_string();
        assert_eq!(refused(r#""\ud800""#), "body: half of a surrogate pair at line 1 column 2");
        assert_eq!(refused("{\n \"a\": \"\\udC00\"}"), "body: half of a surrogate pair at line 2 column 8");
        for text in [r#""\ud83e\udd86""#, r#""\\ud800""#, r#""\u0041\\""#, r#""\ue000""#, "\"\u{1f986}\""] {
            well_formed(None, text.as_bytes()).unwrap();
        }
        well_formed(Some(BYTES), br#""\ud800""#).unwrap();
    }

    #[test]
    fn an_error_of_the_type_itself_keeps_its_text_and_gets_a_path() {
        #[derive(Deserialize)]
        struct Picky;
        impl Serialize for Picky {
            fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
                Err(serde::ser::Error::custom("no"))
            }
        }
        refused(vec![Picky], "[0]: no");
    }
}
