//! Private keys in PEM blocks.

use super::rewrite::Rewrite;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";
const PRIVATE_KEY: &str = "PRIVATE KEY";

/// The longest label between BEGIN and the dashes, in bytes. Known ones have up to 25.
const LABEL_BYTES_MAX: usize = 64;

/// Masks each private-key block, to its END line or to the end of the text.
pub(super) fn mask(text: &str) -> String {
    let mut rewrite = Rewrite::new(text);
    let mut at = 0;
    while let Some(begin) = text[at..].find(BEGIN).map(|found| at + found) {
        at = begin + BEGIN.len();
        if let Some(body) = private_label_end(text, at) {
            at = block_end(text, body);
            rewrite.mask(begin, at);
        }
    }
    rewrite.finish()
}

/// The end of the block whose body begins at `body`.
fn block_end(text: &str, body: usize) -> usize {
    let mut at = body;
    while let Some(found) = text[at..].find(END) {
        at += found + END.len();
        if let Some(end) = private_label_end(text, at) {
            return end;
        }
    }
    text.len()
}

/// Where the dashes after a private key's label end, if such a label begins at `from`.
fn private_label_end(text: &str, from: usize) -> Option<usize> {
    let label = text[from..].bytes().take(LABEL_BYTES_MAX).take_while(|byte| is_label(*byte)).count();
    let end = from + label;
    let private = text[from..end].contains(PRIVATE_KEY) && text[end..].starts_with(DASHES);
    private.then_some(end + DASHES.len())
}

fn is_label(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b' '
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(mask(text), expected, "{text:?}");
    }

    #[test]
    fn a_private_key_is_masked_with_its_lines() {
        check("a\n-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----\nb", "a\n***\nb");
        check("-----BEGIN OPENSSH PRIVATE KEY-----\nx\n-----END OPENSSH PRIVATE KEY-----", "***");
        check("-----BEGIN PGP PRIVATE KEY BLOCK-----\nx\n-----END PGP PRIVATE KEY BLOCK-----", "***");
        check(r"-----BEGIN EC PRIVATE KEY-----\nMII\n-----END EC PRIVATE KEY-----\n", r"***\n");
    }

    #[test]
    fn without_an_end_line_the_rest_of_the_text_goes() {
        check("a -----BEGIN RSA PRIVATE KEY-----\nMII\nb", "a ***");
        check("-----BEGIN PRIVATE KEY-----\nx\n-----END CERTIFICATE-----\ny", "***");
    }

    #[test]
    fn public_parts_stay() {
        let certificate = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----";
        check(certificate, certificate);
    }
}
