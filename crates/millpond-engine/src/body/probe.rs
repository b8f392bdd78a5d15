//! Encodes JSON and notices, at next to no cost, what JSON cannot say.
//!
//! serde_json writes NaN and infinity as `null` and numbers as keys of maps. The formatter sees both only as
//! "a null" and "a number within a key", so either raises a doubt, and a doubt is settled by walking the
//! value once more with [`path::check`]. A body without absent values is never walked twice.

use std::cell::Cell;
use std::io::{Error, Result, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

use super::{BodyError, DEPTH_MAX, not_too_deep, path, too_deep};

/// The JSON of a value.
pub(super) fn encode<T: Serialize>(value: &T) -> std::result::Result<Vec<u8>, BodyError> {
    let (doubt, copied) = (Cell::new(false), Cell::new(false));
    let mut bytes = Vec::with_capacity(256);
    let probe = Probe { doubt: &doubt, copied: &copied, depth: 0, in_key: false };
    let written = value.serialize(&mut Serializer::with_formatter(&mut bytes, probe));
    if written.is_err() || doubt.get() {
        path::check(value)?;
    }
    written.map_err(|why| BodyError::new(why.to_string()))?;
    // What was encoded before, and only copied here, has a depth of its own.
    if copied.get() {
        not_too_deep(&bytes)?;
    }
    Ok(bytes)
}

struct Probe<'a> {
    /// Whether something was written that may stand for something else.
    doubt: &'a Cell<bool>,
    /// Whether JSON that was encoded elsewhere was copied.
    copied: &'a Cell<bool>,
    depth: usize,
    in_key: bool,
}

impl Probe<'_> {
    fn enter(&mut self) -> Result<()> {
        self.depth += 1;
        if DEPTH_MAX < self.depth { Err(Error::other(too_deep())) } else { Ok(()) }
    }

    fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    fn scalar(&self) {
        if self.in_key {
            self.doubt.set(true);
        }
    }
}

/// Writes a scalar as serde_json does, after a look at where it is.
macro_rules! scalars {
    ($($method:ident: $type:ty,)*) => {$(
        fn $method<W: ?Sized + Write>(&mut self, writer: &mut W, value: $type) -> Result<()> {
            self.scalar();
            serde_json::ser::CompactFormatter.$method(writer, value)
        }
    )*};
}

impl Formatter for Probe<'_> {
    scalars! {
        write_bool: bool,
        write_i8: i8, write_i16: i16, write_i32: i32, write_i64: i64, write_i128: i128,
        write_u8: u8, write_u16: u16, write_u32: u32, write_u64: u64, write_u128: u128,
        write_f32: f32, write_f64: f64,
    }

    fn write_raw_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> Result<()> {
        self.copied.set(true);
        writer.write_all(fragment.as_bytes())
    }

    fn write_null<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.doubt.set(true);
        writer.write_all(b"null")
    }

    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.enter()?;
        writer.write_all(b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.leave();
        writer.write_all(b"]")
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.enter()?;
        writer.write_all(b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.leave();
        writer.write_all(b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> Result<()> {
        self.in_key = true;
        if first { Ok(()) } else { writer.write_all(b",") }
    }

    fn end_object_key<W: ?Sized + Write>(&mut self, _: &mut W) -> Result<()> {
        self.in_key = false;
        Ok(())
    }
}
