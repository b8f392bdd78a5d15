//! Which partition a key belongs to: the same on every node, store and version.

/// The hash of a key: MurmurHash3, x86, 32 bit, seed 0, over the UTF-8 bytes, with the top bit cleared.
///
/// - **Shape:** 0 to 2³¹ − 1. Stored numbers depend on it, so it never changes.
pub fn shard_hash(key: &str) -> u32 {
    murmur3(key.as_bytes()) & 0x7fff_ffff
}

/// The partition of a key in a queue of so many partitions.
///
/// - **Shape:** 0 to `partitions` − 1. A queue without partitions does not exist; for 0 the answer is 0.
pub fn shard(key: &str, partitions: u16) -> u16 {
    let partition = shard_hash(key) % u32::from(partitions.max(1));
    u16::try_from(partition).expect("a remainder is less than its divisor, which is a u16")
}

fn murmur3(bytes: &[u8]) -> u32 {
    let mut hash = 0_u32;
    let mut blocks = bytes.chunks_exact(4);
    for block in &mut blocks {
        hash = (hash ^ mixed(little_endian(block))).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    hash ^= mixed(little_endian(blocks.remainder()));
    // The algorithm takes the length modulo 2³².
    finished(hash ^ bytes.len() as u32)
}

/// Up to four bytes as a number. No bytes are 0, which mixes to 0.
fn little_endian(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn mixed(block: u32) -> u32 {
    block.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593)
}

/// Lets every bit of the hash depend on every other.
fn finished(hash: u32) -> u32 {
    let hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    let hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(key: &str, hash: u32, cleared: u32, partition: u16) {
        assert_eq!(murmur3(key.as_bytes()), hash, "{key:?}");
        assert_eq!(shard_hash(key), cleared, "{key:?}");
        assert_eq!(shard(key, 16), partition, "{key:?}");
    }

    #[test]
    fn the_hash_is_that_of_the_specification() {
        check("", 0x0000_0000, 0, 0);
        check("hello", 0x248b_fa47, 613_153_351, 7);
        check("a", 0x3c25_69b2, 1_009_084_850, 2);
        check("é", 0x1011_0787, 269_551_495, 7);
        check("main_company.team_daily_report", 0xca55_193a, 1_247_091_002, 10);
        check("main_company.team_etl", 0x86d7_d998, 114_809_240, 8);
        check("company.team_daily_report", 0x1040_8476, 272_663_670, 6);
        check("main_io.kestra.tests_flow", 0x47fc_1459, 1_207_702_617, 9);
        check("main_数据_流", 0xae9b_fb87, 781_974_407, 7);
    }

    #[test]
    fn every_number_of_partitions_has_an_answer() {
        for partitions in [1, 2, 3, 1_000, u16::MAX] {
            assert!(shard("hello", partitions) < partitions);
        }
        assert_eq!(shard("hello", 0), 0);
    }
}
