//! Bit strings.

/// Bits in whole bytes, the first bit highest in the first byte.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bits(Vec<u8>);

impl Bits {
    /// As many clear bits, and what it takes to whole bytes.
    pub fn clear(length: usize) -> Self {
        Self(vec![0; length.div_ceil(8)])
    }

    /// Whole bytes, as bits.
    pub fn of_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Sets a bit that is within the length.
    pub fn set(&mut self, place: usize) {
        self.0[place / 8] |= 0x80 >> (place % 8);
    }

    /// Whether a bit is set; what is beyond the length is clear.
    pub fn is_set(&self, place: usize) -> bool {
        self.0.get(place / 8).is_some_and(|byte| byte & (0x80 >> (place % 8)) != 0)
    }

    /// How many are set.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|byte| byte.count_ones()).sum()
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Sets what is set in `other`, and grows to its length.
    pub fn merge(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (byte, more) in self.0.iter_mut().zip(&other.0) {
            *byte |= more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_from_the_left() {
        let mut bits = Bits::clear(10);
        bits.set(0);
        bits.set(9);
        assert_eq!(bits.bytes(), [0b1000_0000, 0b0100_0000]);
        assert!(bits.is_set(9) && !bits.is_set(8) && !bits.is_set(100));
        assert_eq!(bits.count(), 2);
        let mut few = Bits::clear(1);
        few.merge(&bits);
        assert_eq!(few, bits);
    }
}
