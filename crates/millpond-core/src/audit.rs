//! The chain of the audit: each line holds the hash of itself and of the one before, so that a line that was changed
//! or taken out is found.

use sha2::{Digest as _, Sha256};

use crate::store::Act;
use crate::time::Timestamp;

/// The hash of a line, given that of the line before; for the first line that is empty.
pub fn link(before: &[u8], number: u64, at: Timestamp, count: u64, act: &Act) -> [u8; 32] {
    let mut hash = Sha256::new();
    let Act { actor, verb, object, reason } = act;
    let has_reason = [u8::from(reason.is_some())];
    let (number, at, count) = (number.to_be_bytes(), at.as_micros().to_be_bytes(), count.to_be_bytes());
    let parts = [
        before,
        &number,
        &at,
        &count,
        actor.as_bytes(),
        verb.as_bytes(),
        object.as_bytes(),
        &has_reason,
        reason.as_deref().unwrap_or_default().as_bytes(),
    ];
    for part in parts {
        // The length first: the end of one part is not the beginning of the next.
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_line_and_the_line_before_are_in_its_hash() {
        let act = |actor: &str, verb: &str, object: &str, reason: Option<&str>| Act {
            actor: actor.into(),
            verb: verb.into(),
            object: object.into(),
            reason: reason.map(Into::into),
        };
        let at = Timestamp::from_secs(1);
        let good = act("ana", "queue pause", "mail", None);
        let one = link(&[], 1, at, 2, &good);
        assert_eq!(one, link(&[], 1, at, 2, &good));
        for other in [
            link(&one, 1, at, 2, &good),
            link(&[], 2, at, 2, &good),
            link(&[], 1, Timestamp::from_secs(2), 2, &good),
            link(&[], 1, at, 3, &good),
            link(&[], 1, at, 2, &act("bob", "queue pause", "mail", None)),
            link(&[], 1, at, 2, &act("anaq", "ueue pause", "mail", None)),
            link(&[], 1, at, 2, &act("ana", "queue pause", "mail", Some(""))),
        ] {
            assert_ne!(one, other);
        }
    }
}
