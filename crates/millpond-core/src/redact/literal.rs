//! Configured secrets, in each form in which a library may print them.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::MASK;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// What percent-encoders leave as it is, beside letters and digits: strict ones, JavaScript's
/// `encodeURIComponent`, and those for the user info of a URL.
const UNESCAPED: [&[u8]; 3] = [b"-._~", b"-._~!'()*", b"-._~!$&'()*+,;="];

/// The forms to look for, longest first: a shorter one may be a part of a longer one.
pub(super) struct Literals {
    forms: Vec<String>,
}

impl Literals {
    pub(super) fn new(literals: &[&str]) -> Literals {
        let secret = literals.iter().filter(|literal| can_be_secret(literal));
        let distinct: BTreeSet<String> = secret.flat_map(|literal| forms(literal)).collect();
        let mut forms: Vec<String> = distinct.into_iter().collect();
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        Literals { forms }
    }

    pub(super) fn mask(&self, text: &str) -> String {
        self.forms.iter().fold(text.to_owned(), |text, form| {
            if text.contains(form.as_str()) { text.replace(form.as_str(), MASK) } else { text }
        })
    }
}

/// Blanks, masks and the cut mark hide nothing, and masking them would change every result again.
fn can_be_secret(literal: &str) -> bool {
    literal.chars().any(|c| !c.is_whitespace() && c != '*' && c != '…')
}

fn forms(literal: &str) -> Vec<String> {
    let mut forms = vec![literal.to_owned()];
    for unescaped in UNESCAPED {
        let upper = percent_encoded(literal, unescaped);
        forms.push(lower_escapes(&upper));
        forms.push(upper.replace("%20", "+"));
        forms.push(lower_escapes(&upper).replace("%20", "+"));
        forms.push(upper);
    }
    let padded = base64(literal.as_bytes());
    let bare = padded.trim_end_matches('=').to_owned();
    for standard in [padded, bare] {
        forms.push(standard.replace('+', "-").replace('/', "_"));
        forms.push(standard);
    }
    forms
}

fn percent_encoded(text: &str, unescaped: &[u8]) -> String {
    text.bytes().fold(String::new(), |mut result, byte| {
        if byte.is_ascii_alphanumeric() || unescaped.contains(&byte) {
            result.push(char::from(byte));
        } else {
            write!(result, "%{byte:02X}").expect("writing to a string does not fail");
        }
        result
    })
}

/// The same with `%3d` for `%3D`. Only escapes begin with `%` here, since `%` itself is escaped.
fn lower_escapes(encoded: &str) -> String {
    let mut escape_left = 0;
    let lower = |c: char| {
        let inside = escape_left > 0;
        escape_left = if c == '%' { 2 } else { escape_left.max(1) - 1 };
        if inside { c.to_ascii_lowercase() } else { c }
    };
    encoded.chars().map(lower).collect()
}

fn base64(bytes: &[u8]) -> String {
    bytes.chunks(3).flat_map(base64_group).collect()
}

/// Three bytes as four characters; the last group may be shorter and is padded.
fn base64_group(group: &[u8]) -> [char; 4] {
    let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
    let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
    let digit = |at: usize| {
        let six = bits >> (18 - 6 * at) & 0x3f;
        if at <= group.len() { char::from(BASE64[six as usize]) } else { '=' }
    };
    [digit(0), digit(1), digit(2), digit(3)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(literal: &str, text: &str, expected: &str) {
        assert_eq!(Literals::new(&[literal]).mask(text), expected, "{literal:?} in {text:?}");
    }

    #[test]
    fn a_literal_is_found_in_every_form() {
        check("tulip", "dial tulip: refused", "dial ***: refused");
        check("p@ss w/ord", "a p@ss w/ord b", "a *** b");
        check("p@ss w/ord", "a p%40ss%20w%2Ford b", "a *** b");
        check("p@ss w/ord", "a p%40ss%20w%2ford b", "a *** b");
        check("p@ss w/ord", "a p%40ss+w%2Ford b", "a *** b");
        check("hey!", "a hey%21 or hey! b", "a *** or *** b");
        check("tulip", "a dHVsaXA= b", "a *** b");
        check("tulip", "a dHVsaXA b", "a *** b");
        check("密码", "a %E5%AF%86%E7%A0%81 b", "a *** b");
    }

    #[test]
    fn both_base64_alphabets_are_known() {
        check("~~~???>>", "fn5+Pz8/Pj4=", "***");
        check("~~~???>>", "fn5-Pz8_Pj4", "***");
    }

    #[test]
    fn the_longest_literal_goes_first() {
        assert_eq!(Literals::new(&["abc", "abcdef"]).mask("abcdef abc"), "*** ***");
    }

    #[test]
    fn what_hides_nothing_is_not_a_literal() {
        check("", "text", "text");
        check("*", "a*b", "a*b");
        check(" ", "a b", "a b");
    }

    #[test]
    fn base64_pads_the_last_group() {
        let cases = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (text, expected) in cases {
            assert_eq!(base64(text.as_bytes()), expected);
        }
    }
}
