//! Bit strings as they are written: `bit varying` of the database.

use std::error::Error;

use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// A bit string of a known length, the first bit highest in the first byte.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bits {
    length: usize,
    bytes: Vec<u8>,
}

impl Bits {
    /// As many clear bits.
    pub(crate) fn clear(length: usize) -> Self {
        Self { length, bytes: vec![0; length.div_ceil(8)] }
    }

    /// Whole bytes, as bits.
    pub(crate) fn of_bytes(bytes: Vec<u8>) -> Self {
        Self { length: bytes.len() * 8, bytes }
    }

    /// Sets a bit that is within the length.
    pub(crate) fn set(&mut self, place: usize) {
        self.bytes[place / 8] |= 0x80 >> (place % 8);
    }

    /// How many are set.
    pub(crate) fn count(&self) -> usize {
        self.bytes.iter().map(|byte| byte.count_ones() as usize).sum()
    }

    /// Whether a bit is set; what is beyond the length is clear.
    pub(crate) fn is_set(&self, place: usize) -> bool {
        self.bytes.get(place / 8).is_some_and(|byte| byte & (0x80 >> (place % 8)) != 0)
    }
}

impl From<millpond_sql::bits::Bits> for Bits {
    fn from(bits: millpond_sql::bits::Bits) -> Self {
        Self::of_bytes(bits.bytes().to_vec())
    }
}

impl ToSql for Bits {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&i32::try_from(self.length)?.to_be_bytes());
        out.extend_from_slice(&self.bytes);
        Ok(IsNull::No)
    }

    fn accepts(asked: &Type) -> bool {
        matches!(*asked, Type::VARBIT | Type::BIT)
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Bits {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let (length, bytes) = raw.split_first_chunk().ok_or("a bit string without its length")?;
        let length = usize::try_from(i32::from_be_bytes(*length))?;
        Ok(Self { length, bytes: bytes.to_vec() })
    }

    fn accepts(asked: &Type) -> bool {
        <Self as ToSql>::accepts(asked)
    }
}

/// The bytes of a bit string in an answer.
pub(crate) struct Bytes<'r>(pub(crate) &'r [u8]);

impl<'r> FromSql<'r> for Bytes<'r> {
    fn from_sql(_: &Type, raw: &'r [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let (_, bytes) = raw.split_first_chunk::<4>().ok_or("a bit string without its length")?;
        Ok(Self(bytes))
    }

    fn accepts(asked: &Type) -> bool {
        <Bits as ToSql>::accepts(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_from_the_left_and_come_back() {
        let mut bits = Bits::clear(10);
        bits.set(0);
        bits.set(9);
        assert_eq!(bits.bytes, [0b1000_0000, 0b0100_0000]);
        assert!(bits.is_set(9) && !bits.is_set(8) && !bits.is_set(100));
        let mut out = BytesMut::new();
        bits.to_sql(&Type::VARBIT, &mut out).unwrap();
        assert_eq!(Bits::from_sql(&Type::VARBIT, &out).unwrap(), bits);
    }
}
