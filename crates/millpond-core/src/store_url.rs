//! What is wrong with the URL of a database server, before anybody tries to reach it: most often a password that
//! was put into it as it stands.
//!
//! No error of this module holds any part of the URL but the one character that is out of place.

use std::fmt;

use thiserror::Error;

/// A part of a URL that people fill with text of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Before the first colon of the user info.
    User,
    /// After it.
    Password,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::User => "user name",
            Part::Password => "password",
        })
    }
}

/// A character that ends the part it stands in, or means something else there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the {part} in the URL has a `{character}` as it stands: write it as `{}`", encoded(*.character))]
pub struct Unencoded {
    /// Where it is.
    pub part: Part,
    /// What it is.
    pub character: char,
}

/// Checks the user info of `scheme://user:password@host/…`. A URL without one passes, and so does one that names a
/// file.
///
/// ```
/// use millpond_core::store_url::check;
/// check("postgres://ada:tu%23lip@db/app").unwrap();
/// assert_eq!(
///     check("postgres://ada:tu#lip@db/app").unwrap_err().to_string(),
///     "the password in the URL has a `#` as it stands: write it as `%23`",
/// );
/// ```
///
/// # Errors
///
/// The first character that must be percent-encoded and is not.
pub fn check(url: &str) -> Result<(), Unencoded> {
    let Some((scheme, rest)) = url.split_once("://") else { return Ok(()) };
    if scheme == "sqlite" || scheme == "file" {
        return Ok(());
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, after) = rest.split_at(end);
    match authority.rfind('@') {
        Some(at) => user_info(&authority[..at]),
        None => cut_off(authority, after),
    }
}

/// The user info of an authority that has one.
fn user_info(text: &str) -> Result<(), Unencoded> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    out_of_place(Part::User, user).and_then(|()| out_of_place(Part::Password, password))
}

fn out_of_place(part: Part, text: &str) -> Result<(), Unencoded> {
    let digit = |place: usize| text.as_bytes().get(place).is_some_and(u8::is_ascii_hexdigit);
    let wrong = |place: usize, character: char| match character {
        '%' => !(digit(place + 1) && digit(place + 2)),
        '@' => true,
        other => other.is_whitespace() || other.is_control(),
    };
    match text.char_indices().find(|(place, character)| wrong(*place, *character)) {
        None => Ok(()),
        Some((_, character)) => Err(Unencoded { part, character }),
    }
}

/// An authority that ended before its `@`, if that is what happened: then what follows the colon is no port.
fn cut_off(authority: &str, after: &str) -> Result<(), Unencoded> {
    let Some(character) = after.chars().next().filter(|_| after.contains('@')) else { return Ok(()) };
    let (part, is_host) = match authority.rsplit_once(':') {
        None => (Part::User, true),
        Some((_, port)) => {
            (Part::Password, !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
        }
    };
    // No URL of a store has a fragment.
    if is_host && character != '#' { Ok(()) } else { Err(Unencoded { part, character }) }
}

fn encoded(character: char) -> String {
    let mut bytes = [0; 4];
    character.encode_utf8(&mut bytes).bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BR-164: a password with `#` in it made the parser speak of a port, and print the password.
    #[test]
    fn br_164_a_raw_character_is_named_with_its_part_and_nothing_else_of_it() {
        for (scheme, character, code) in
            ["postgres", "postgresql", "mysql", "mariadb", "redis"].iter().flat_map(|scheme| {
                [('#', "%23"), ('@', "%40"), ('/', "%2F"), ('?', "%3F"), ('%', "%25"), (' ', "%20")]
                    .map(|(character, code)| (scheme, character, code))
            })
        {
            let url = format!("{scheme}://ada:tu{character}lip@db:5432/app?tls=require");
            let said = check(&url).unwrap_err().to_string();
            let expected =
                format!("the password in the URL has a `{character}` as it stands: write it as `{code}`");
            assert_eq!(said, expected, "{url}");
            let url = format!("{scheme}://ada:tu{code}lip@db:5432/app?tls=require");
            assert_eq!(check(&url), Ok(()), "{url}");
        }
        let user = check("postgres://a@da:x@db").unwrap_err();
        assert_eq!((user.part, user.character), (Part::User, '@'));
        let cut = check("postgres://ada:#@db").unwrap_err();
        assert_eq!((cut.part, cut.character), (Part::Password, '#'));
    }

    #[test]
    fn a_url_that_is_right_passes() {
        for url in [
            "postgres://db/app",
            "postgres://db:5432/app?user=ada@example.org",
            "postgres://[::1]:5432/app",
            "postgres://ada@db/app",
            "postgres://ada:@db/app",
            "postgres://ada:a:b@db/app",
            "postgres:///app?host=/run/postgresql",
            "sqlite://a#b@c?synchronous=full",
            "sqlite::memory:",
            "app.db",
            "",
            "://",
            "://@",
        ] {
            assert_eq!(check(url), Ok(()), "{url}");
        }
    }
}
