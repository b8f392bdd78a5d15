//! Values as they stand in the text of a statement.
//!
//! Statements are sent as text and not prepared: a proxy may give each transaction another connection, and several
//! statements go in one packet. This is the one place that writes values. The session has a `sql_mode` in which a
//! backslash escapes (see [`crate::connection`]).

use std::io::Write;

use uuid::Uuid;

use crate::bits::Bits;

/// A value that a statement can hold.
pub(crate) trait Literal {
    /// Writes it.
    fn write(&self, out: &mut Vec<u8>);
}

/// A parameter of a statement.
pub(crate) type Param<'a> = &'a (dyn Literal + Sync);

/// A value of a row, of which each column may have another type.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cell<'c> {
    Null,
    Int(i64),
    Id(Uuid),
    Text(&'c str),
    Bytes(&'c [u8]),
    /// So many microseconds after the time that the script has set as `@the_time`.
    Later(i64),
}

impl Literal for Cell<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Cell::Null => out.extend_from_slice(b"null"),
            Cell::Int(number) => number.write(out),
            Cell::Id(id) => id.write(out),
            Cell::Text(text) => text.write(out),
            Cell::Bytes(bytes) => bytes.write(out),
            Cell::Later(wait) => write!(out, "@the_time+{wait}").expect("memory takes everything"),
        }
    }
}

impl From<i64> for Cell<'_> {
    fn from(number: i64) -> Self {
        Cell::Int(number)
    }
}

impl From<Uuid> for Cell<'_> {
    fn from(id: Uuid) -> Self {
        Cell::Id(id)
    }
}

impl<'c> From<&'c str> for Cell<'c> {
    fn from(text: &'c str) -> Self {
        Cell::Text(text)
    }
}

impl<'c> From<&'c [u8]> for Cell<'c> {
    fn from(bytes: &'c [u8]) -> Self {
        Cell::Bytes(bytes)
    }
}

impl<'c, T: Into<Cell<'c>>> From<Option<T>> for Cell<'c> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Cell::Null, Into::into)
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl Literal for $number {
            fn write(&self, out: &mut Vec<u8>) {
                write!(out, "{self}").expect("memory takes everything");
            }
        })*
    };
}

numbers!(u8, u16, u32, u64, usize, i16, i32, i64);

impl Literal for bool {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(if *self { b'1' } else { b'0' });
    }
}

impl Literal for Uuid {
    fn write(&self, out: &mut Vec<u8>) {
        let mut digits = Uuid::encode_buffer();
        out.extend_from_slice(b"x'");
        out.extend_from_slice(self.simple().encode_lower(&mut digits).as_bytes());
        out.push(b'\'');
    }
}

impl Literal for str {
    fn write(&self, out: &mut Vec<u8>) {
        quoted(self.as_bytes(), out);
    }
}

impl Literal for String {
    fn write(&self, out: &mut Vec<u8>) {
        self.as_str().write(out);
    }
}

/// Bytes have no character set: what is not valid text must pass.
impl Literal for [u8] {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"_binary");
        quoted(self, out);
    }
}

impl Literal for Vec<u8> {
    fn write(&self, out: &mut Vec<u8>) {
        self.as_slice().write(out);
    }
}

impl Literal for Bits {
    fn write(&self, out: &mut Vec<u8>) {
        self.bytes().write(out);
    }
}

impl<T: Literal + ?Sized> Literal for &T {
    fn write(&self, out: &mut Vec<u8>) {
        (**self).write(out);
    }
}

impl<T: Literal> Literal for Option<T> {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Some(value) => value.write(out),
            None => Cell::Null.write(out),
        }
    }
}

impl Literal for millpond_sql::Param<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Number(number) => number.write(out),
            Self::Int(number) => number.write(out),
            Self::Flag(flag) => flag.write(out),
            Self::Text(text) => text.write(out),
            Self::Id(id) => id.write(out),
            Self::Numbers(numbers) => List(numbers.to_vec()).write(out),
        }
    }
}

/// The values of `in (…)`.
#[derive(Debug)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

/// A list without values holds nothing: `in (null)` is never true.
impl<T: Literal> Literal for List<T> {
    fn write(&self, out: &mut Vec<u8>) {
        for (place, value) in self.0.iter().enumerate() {
            if 0 < place {
                out.push(b',');
            }
            value.write(out);
        }
        if self.0.is_empty() {
            Cell::Null.write(out);
        }
    }
}

/// The connection speaks utf8mb4, in which no byte of a longer character is a quote or a backslash.
fn quoted(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len() + 2);
    out.push(b'\'');
    let mut rest = bytes;
    while let Some(place) = rest.iter().position(|byte| matches!(byte, b'\'' | b'\\' | 0 | b'\x1a')) {
        out.extend_from_slice(&rest[..place]);
        out.extend_from_slice(match rest[place] {
            0 => b"\\0",
            b'\x1a' => b"\\Z",
            b'\'' => b"\\'",
            _ => b"\\\\",
        });
        rest = &rest[place + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: Param<'_>, expected: &str) {
        let mut out = Vec::new();
        value.write(&mut out);
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn values_are_written_so_that_they_end_where_they_should() {
        check(&-5_i64, "-5");
        check(&true, "1");
        check(&None::<i64>, "null");
        check(&"it's \\", r"'it\'s \\'");
        check(&&b"a\0b\x1a"[..], r"_binary'a\0b\Z'");
        check(&Uuid::from_u128(1), "x'00000000000000000000000000000001'");
        check(&Cell::Later(5), "@the_time+5");
        check(&List(vec![1, 2]), "1,2");
        check(&List(Vec::<i64>::new()), "null");
    }
}
