//! What a worker has in its hands: the claims it registered and how much of each is unsettled.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use millpond_core::message::Token;
use millpond_core::store::ClaimRef;

/// Claims of one worker, by token. A token is registered before its lease is asked for, so that a renewal
/// never takes a claim that is on its way for an abandoned one.
#[derive(Debug, Default)]
pub(crate) struct Hands {
    claims: Mutex<HashMap<Token, InHand>>,
    /// Whether a claim was ever lost. Until then every message that waits is held, and nobody has to look.
    ever_lost: AtomicBool,
}

/// One claim in hand.
#[derive(Debug, Clone, Copy)]
struct InHand {
    /// `None` while the lease is asked for.
    held: Option<ClaimRef>,
    unsettled: usize,
    /// Those of them whose end is being recorded.
    settling: usize,
    suspects: bool,
}

/// What a settlement left in hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Left {
    /// Unsettled messages of all claims.
    pub(crate) in_hand: usize,
    /// Whether a suspect group is among them.
    pub(crate) suspects: bool,
}

impl Hands {
    /// A lease is about to be asked for.
    pub(crate) fn register(&self, token: Token) {
        self.lock().insert(token, InHand { held: None, unsettled: 0, settling: 0, suspects: false });
    }

    /// The lease was granted.
    pub(crate) fn take(&self, held: ClaimRef, messages: usize, suspects: bool) {
        self.lock()
            .insert(held.token, InHand { held: Some(held), unsettled: messages, settling: 0, suspects });
    }

    /// The lease was not granted.
    pub(crate) fn drop_claim(&self, token: Token) {
        self.lock().remove(&token);
    }

    /// The claim was taken over.
    pub(crate) fn lose(&self, token: Token) {
        self.ever_lost.store(true, Ordering::Release);
        self.drop_claim(token);
    }

    /// Whether a claim is in hand, as far as is known.
    pub(crate) fn holds(&self, token: Token) -> bool {
        !self.ever_lost.load(Ordering::Acquire) || self.lock().contains_key(&token)
    }

    /// The store is about to be told how messages of a claim ended.
    pub(crate) fn settling(&self, token: Token, messages: usize) {
        if let Some(claim) = self.lock().get_mut(&token) {
            claim.settling += messages;
        }
    }

    /// Messages of a claim were settled.
    pub(crate) fn settled(&self, token: Token, messages: usize) {
        let mut claims = self.lock();
        if let Some(claim) = claims.get_mut(&token) {
            claim.settling = claim.settling.saturating_sub(messages);
            claim.unsettled = claim.unsettled.saturating_sub(messages);
            if claim.unsettled == 0 {
                claims.remove(&token);
            }
        }
    }

    /// What is in hand now.
    pub(crate) fn left(&self) -> Left {
        let claims = self.lock();
        let in_hand = claims.values().map(|claim| claim.unsettled).sum();
        Left { in_hand, suspects: claims.values().any(|claim| claim.suspects) }
    }

    /// Unsettled messages of the claims of one subscription.
    pub(crate) fn of(&self, subscription: i64) -> usize {
        let is_its = |claim: &&InHand| claim.held.is_some_and(|held| held.subscription == subscription);
        self.lock().values().filter(is_its).map(|claim| claim.unsettled).sum()
    }

    /// Those of the store's claims for this worker that it does not know.
    pub(crate) fn unknown(&self, stored: &[ClaimRef]) -> Vec<ClaimRef> {
        let claims = self.lock();
        stored.iter().filter(|claim| !claims.contains_key(&claim.token)).copied().collect()
    }

    /// Those of its claims that `stored` no longer has: they were taken over. One whose last messages are being
    /// recorded may be gone because they were; the answer to that tells.
    pub(crate) fn missing(&self, stored: &[ClaimRef], known_before: &[Token]) -> Vec<Token> {
        let claims = self.lock();
        let runs = |token: &Token| claims.get(token).is_some_and(|claim| claim.settling < claim.unsettled);
        let gone = |token: &&Token| runs(token) && !stored.iter().any(|claim| claim.token == **token);
        known_before.iter().filter(gone).copied().collect()
    }

    /// The tokens of claims that were granted.
    pub(crate) fn tokens(&self) -> Vec<Token> {
        let granted = |(token, claim): (&Token, &InHand)| claim.held.is_some().then_some(*token);
        self.lock().iter().filter_map(granted).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Token, InHand>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use millpond_core::message::Offset;

    use super::*;

    fn claim(token: u8) -> ClaimRef {
        ClaimRef { subscription: 1, partition: 1, to_offset: Offset(9), token: Token([token; 16]) }
    }

    #[test]
    fn a_claim_leaves_the_hands_when_its_last_message_is_settled() {
        let hands = Hands::default();
        hands.register(claim(1).token);
        hands.take(claim(1), 3, true);
        hands.settled(claim(1).token, 2);
        assert_eq!(hands.left(), Left { in_hand: 1, suspects: true });
        hands.settled(claim(1).token, 1);
        assert_eq!(hands.left(), Left { in_hand: 0, suspects: false });
    }

    #[test]
    fn a_claim_that_was_never_registered_is_unknown_and_one_on_its_way_is_not() {
        let hands = Hands::default();
        hands.register(claim(1).token);
        assert_eq!(hands.unknown(&[claim(1), claim(2)]), [claim(2)]);
    }

    #[test]
    fn a_claim_that_is_gone_while_its_last_messages_are_recorded_was_not_taken_over() {
        let hands = Hands::default();
        hands.take(claim(1), 2, false);
        let known = hands.tokens();
        hands.settling(claim(1).token, 1);
        assert_eq!(hands.missing(&[], &known), [claim(1).token], "another message of it runs");
        hands.settling(claim(1).token, 1);
        assert_eq!(hands.missing(&[], &known), []);
        hands.settled(claim(1).token, 1);
        assert_eq!(hands.missing(&[], &known), [], "the other one is being recorded still");
    }

    #[test]
    fn a_claim_that_the_store_no_longer_has_was_taken_over() {
        let hands = Hands::default();
        hands.take(claim(1), 1, false);
        hands.take(claim(2), 1, false);
        let known = hands.tokens();
        hands.settled(claim(2).token, 1);
        assert_eq!(hands.missing(&[], &known), [claim(1).token], "the other one was settled meanwhile");
    }
}
