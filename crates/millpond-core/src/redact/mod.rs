//! Redaction: one function for every error text that is stored, shown or sent.
//!
//! The order is fixed: cap → literals → PEM → URL user info → pairs → stand-alone secrets → cut. Masking
//! comes before the cut, because the other order keeps half a secret whose key was cut off. Where a rule
//! leaves room, more is masked: too much is a nuisance, too little a leak.
//!
//! Every part walks its text once and looks ahead only over what it then consumes, so the time is linear in
//! the text. Message bodies do not pass through here: they are stored as sent.

mod key;
mod literal;
mod pair;
mod pem;
mod quote;
mod rewrite;
mod token;
mod url;
mod value;

use std::borrow::Cow;

use literal::Literals;

/// What stands for a secret. The length of the secret does not show.
pub const MASK: &str = "***";

/// The length of a redacted text, in Unicode scalar values.
pub const REDACTED_CHARS_MAX: usize = 2_000;

/// The part of a text that is looked at, in bytes. What lies beyond is dropped unseen.
pub const INPUT_BYTES_MAX: usize = 64 * 1024;

/// What is stored if a text cannot be redacted; the caller adds the class of the error.
pub const UNREDACTABLE: &str = "[unredactable]";

/// The end of a text that was cut.
const CUT_MARK: &str = " …";

/// Masking can uncover what only now looks like a pair. Two passes settle nearly every text; one that still
/// changes after this many is not trusted.
const PASSES_MAX: usize = 8;

/// The text as it may be stored: secrets masked, at most [`REDACTED_CHARS_MAX`] characters.
///
/// `literals` are the configured secrets (passwords of the database, the broker and webhooks, and
/// `redact.literals`). They are masked wherever they occur, also percent-encoded and in base64.
///
/// U+0000 becomes U+FFFD. Redacting the result again changes nothing.
///
/// ```
/// use millpond_core::redact::redact;
/// assert_eq!(redact("login failed: password=abc, id=7", &[]), "login failed: password=***, id=7");
/// assert_eq!(redact("dial tulip: refused", &["tulip"]), "dial ***: refused");
/// ```
pub fn redact(text: &str, literals: &[&str]) -> String {
    let literals = Literals::new(literals);
    let mut result = pass(&without_nul(text), &literals);
    for _ in 1..PASSES_MAX {
        let again = pass(&result, &literals);
        if again == result {
            return result;
        }
        result = again;
    }
    UNREDACTABLE.to_owned()
}

/// [`redact`] where no secrets are configured.
pub fn summary(text: &str) -> String {
    redact(text, &[])
}

/// Some databases cannot hold U+0000 in a text, and an error must be recorded by all of them alike.
fn without_nul(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}

fn pass(text: &str, literals: &Literals) -> String {
    let capped = cap(text);
    let masked = literals.mask(capped);
    let masked = pem::mask(&masked);
    let masked = url::mask(&masked);
    let masked = pair::mask(&masked);
    let masked = token::mask(&masked);
    cut(masked, capped.len() < text.len())
}

/// The first [`INPUT_BYTES_MAX`] bytes, without the word that the cap broke: half a secret may not be
/// recognized as one.
fn cap(text: &str) -> &str {
    if text.len() <= INPUT_BYTES_MAX {
        return text;
    }
    let end = (0..=INPUT_BYTES_MAX).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    let words = text[..end].rfind(char::is_whitespace).unwrap_or(0);
    &text[..words]
}

/// At most [`REDACTED_CHARS_MAX`] characters; a shortened text ends in the cut mark.
fn cut(mut text: String, capped: bool) -> String {
    let too_long = text.char_indices().nth(REDACTED_CHARS_MAX).is_some();
    if !too_long && !capped {
        return text;
    }
    let kept_max = REDACTED_CHARS_MAX - CUT_MARK.chars().count();
    if let Some((end, _)) = text.char_indices().nth(kept_max) {
        text.truncate(end - inside_mask(&text, end));
    }
    text.push_str(CUT_MARK);
    text
}

/// How many bytes before `end` belong to a mask that `end` would cut in two.
fn inside_mask(text: &str, end: usize) -> usize {
    if !text[end..].starts_with('*') {
        return 0;
    }
    let stars = end - text[..end].trim_end_matches('*').len();
    stars % MASK.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cap_drops_the_word_that_it_breaks() {
        let text = format!("first {}", "x".repeat(INPUT_BYTES_MAX));
        assert_eq!(cap(&text), "first");
        assert_eq!(redact(&text, &[]), "first …");
    }

    #[test]
    fn the_cap_falls_on_a_character_boundary() {
        let text = format!("a {}", "é".repeat(INPUT_BYTES_MAX));
        assert_eq!(cap(&text), "a");
    }

    #[test]
    fn the_cut_keeps_a_mask_whole_or_drops_it() {
        for lead in 1_990..2_000 {
            let text = format!("{} password=abc and more words", "x".repeat(lead - 10));
            let stars = redact(&text, &[]).matches('*').count();
            assert!(stars == 0 || stars == 3, "{stars} stars after {lead} characters");
        }
    }

    #[test]
    fn a_cut_text_ends_in_the_mark_and_stays_as_it_is() {
        for lead in 1_960..2_000 {
            let text =
                format!("{} password=\"abc def\" Cookie: a=b; c=d\n{}", "x".repeat(lead), "y".repeat(50));
            let once = redact(&text, &[]);
            assert!(once.chars().count() <= REDACTED_CHARS_MAX);
            assert!(once.ends_with(CUT_MARK), "{once}");
            assert_eq!(redact(&once, &[]), once);
        }
    }
}
