//! Walks a value without writing it and finds the first place that has no JSON form.
//!
//! The path is put together while the refusal passes out, so a value without one costs no allocation beside
//! the keys of its maps.

use std::fmt::{self, Display};

use serde::ser::{self, Serialize, Serializer};

use super::{BodyError, DEPTH_MAX, too_deep};

/// Refuses a value with its path, if it has no JSON form.
pub(super) fn check<T: Serialize + ?Sized>(value: &T) -> Result<(), BodyError> {
    value.serialize(Walk { depth: 0 }).map_err(|refusal| refusal.into_error())
}

/// The problem, and the path to it with the innermost step first.
#[derive(Debug)]
struct Refusal {
    problem: String,
    steps: Vec<Step>,
}

#[derive(Debug)]
enum Step {
    Name(String),
    Index(usize),
}

type Walked = Result<(), Box<Refusal>>;

impl Refusal {
    fn new(problem: impl Into<String>) -> Box<Self> {
        Box::new(Self { problem: problem.into(), steps: Vec::new() })
    }

    fn within(mut self: Box<Self>, step: Step) -> Box<Self> {
        self.steps.push(step);
        self
    }

    fn into_error(self) -> BodyError {
        let path: String = self.steps.iter().rev().map(Step::to_string).collect();
        match path.strip_prefix('.').unwrap_or(&path) {
            "" => BodyError::new(self.problem),
            path => BodyError::at(path, self.problem),
        }
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
        };
        match self {
            Step::Name(name) if plain(name) => write!(f, ".{name}"),
            Step::Name(name) => write!(f, "[{name:?}]"),
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}

impl Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for Refusal {}

impl ser::Error for Box<Refusal> {
    fn custom<T: Display>(problem: T) -> Self {
        Refusal::new(problem.to_string())
    }
}

/// At one value.
#[derive(Clone, Copy)]
struct Walk {
    depth: usize,
}

impl Walk {
    fn enter(self) -> Result<Inside, Box<Refusal>> {
        let depth = self.depth + 1;
        if DEPTH_MAX < depth {
            return Err(Refusal::new(too_deep()));
        }
        Ok(Inside { depth, index: 0, key: String::new(), variant: None })
    }

    /// In the value of `{"variant": value}`, which is how JSON writes the variant of an enum.
    fn enter_variant(self, variant: &'static str) -> Result<Inside, Box<Refusal>> {
        let outer = self.enter()?;
        let inside = Walk { depth: outer.depth }.enter().map_err(|refusal| refusal.within(name(variant)))?;
        Ok(Inside { variant: Some(variant), ..inside })
    }
}

fn name(text: &str) -> Step {
    Step::Name(text.to_owned())
}

fn finite(value: f64) -> Walked {
    if value.is_finite() { Ok(()) } else { Err(Refusal::new(format!("{value} has no JSON form"))) }
}

/// Accepts what needs no look.
macro_rules! fine {
    ($($method:ident($($type:ty),*);)*) => {$(
        fn $method(self, $(_: $type),*) -> Walked {
            Ok(())
        }
    )*};
}

impl Serializer for Walk {
    type Ok = ();
    type Error = Box<Refusal>;
    type SerializeSeq = Inside;
    type SerializeTuple = Inside;
    type SerializeTupleStruct = Inside;
    type SerializeTupleVariant = Inside;
    type SerializeMap = Inside;
    type SerializeStruct = Inside;
    type SerializeStructVariant = Inside;

    fine! {
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_i128(i128);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_u128(u128);
        serialize_char(char);
        serialize_str(&str);
        serialize_bytes(&[u8]);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(&'static str);
        serialize_unit_variant(&'static str, u32, &'static str);
    }

    fn serialize_f32(self, value: f32) -> Walked {
        finite(value.into())
    }

    fn serialize_f64(self, value: f64) -> Walked {
        finite(value)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Walked {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Walked {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Walked {
        self.enter()?.walk(value, || name(variant))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Inside, Box<Refusal>> {
        self.enter()
    }

    fn serialize_tuple(self, _: usize) -> Result<Inside, Box<Refusal>> {
        self.enter()
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Inside, Box<Refusal>> {
        self.enter()
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Inside, Box<Refusal>> {
        self.enter_variant(variant)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Inside, Box<Refusal>> {
        self.enter()
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Inside, Box<Refusal>> {
        self.enter()
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Inside, Box<Refusal>> {
        self.enter_variant(variant)
    }

    fn collect_str<T: Display + ?Sized>(self, _: &T) -> Walked {
        Ok(())
    }
}

/// In a list or map.
struct Inside {
    depth: usize,
    /// Of the next item of a list.
    index: usize,
    /// Of the next value of a map.
    key: String,
    /// The variant whose fields these are.
    variant: Option<&'static str>,
}

impl Inside {
    fn walk<T: Serialize + ?Sized>(&self, value: &T, step: impl FnOnce() -> Step) -> Walked {
        value.serialize(Walk { depth: self.depth }).map_err(|refusal| {
            let refusal = refusal.within(step());
            match self.variant {
                Some(variant) => refusal.within(name(variant)),
                None => refusal,
            }
        })
    }

    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Walked {
        let index = self.index;
        self.index += 1;
        self.walk(value, || Step::Index(index))
    }

    fn field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Walked {
        self.walk(value, || name(key))
    }
}

/// Implements the traits of lists, which differ in the name of their method.
macro_rules! lists {
    ($($list:ident.$method:ident,)*) => {$(
        impl ser::$list for Inside {
            type Ok = ();
            type Error = Box<Refusal>;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Walked {
                self.item(value)
            }

            fn end(self) -> Walked {
                Ok(())
            }
        }
    )*};
}

lists! {
    SerializeSeq.serialize_element,
    SerializeTuple.serialize_element,
    SerializeTupleStruct.serialize_field,
    SerializeTupleVariant.serialize_field,
}

/// Implements the traits of structs.
macro_rules! structs {
    ($($name:ident,)*) => {$(
        impl ser::$name for Inside {
            type Ok = ();
            type Error = Box<Refusal>;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Walked {
                self.field(key, value)
            }

            fn end(self) -> Walked {
                Ok(())
            }
        }
    )*};
}

structs! { SerializeStruct, SerializeStructVariant, }

impl ser::SerializeMap for Inside {
    type Ok = ();
    type Error = Box<Refusal>;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Walked {
        self.key = key_text(key)?;
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Walked {
        self.walk(value, || name(&self.key))
    }

    fn end(self) -> Walked {
        Ok(())
    }
}

/// The text of a key of a map, which must be one. serde_json knows what a key is written as.
fn key_text<T: Serialize + ?Sized>(key: &T) -> Result<String, Box<Refusal>> {
    match serde_json::to_value(key) {
        Ok(serde_json::Value::String(text)) => Ok(text),
        Ok(number @ (serde_json::Value::Number(_) | serde_json::Value::Bool(_))) => {
            Err(Refusal::new(format!("the map key {number} is no text")))
        }
        Ok(_) => Err(Refusal::new("a map key is no text")),
        Err(why) => Err(Refusal::new(why.to_string())),
    }
}
