//! The closed sets of reasons: why a message waits, why it came back, why it left.

/// Declares an enum whose values have one text each, stored and shown.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every value.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// The text that is stored and shown.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            /// The value whose text this is.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == text)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// Why a message leaves without an acknowledgement (M8). All but the last four are kept as dead letters.
    DropReason {
        /// The last attempt failed: error, timeout or panic.
        Exhausted = "exhausted",
        /// The handler said dead-letter.
        Refused = "refused",
        /// Envelope or body cannot be decoded.
        Undecodable = "undecodable",
        /// The carrier can never hold this message.
        UnsupportedPayload = "unsupported-payload",
        /// The lease of the last attempt was lost.
        LeaseExhausted = "lease-exhausted",
        /// The message's own deadline passed.
        RetryUntil = "retry-until",
        /// Put back without an attempt too often.
        ReleasesExhausted = "releases-exhausted",
        /// No live node has had a handler for the queue for the maximum age.
        NoListenerExpired = "no-listener-expired",
        /// Redelivered by a carrier after its inbox row may have been pruned.
        TooOld = "too-old",
        /// By a person or by code.
        Cancelled = "cancelled",
        /// A declared retention passed, or an operator emptied the queue.
        Purged = "purged",
        /// Dropped unread by an operator's recovery list.
        Ignored = "ignored",
        /// Never stored: the outcome of the commit is not known.
        CommitUnknown = "commit-unknown",
        /// Never stored: the process ended and nothing could be reached.
        HandoffFailed = "handoff-failed",
    }
}

words! {
    /// Why a message waits in the outbox.
    OutboxReason {
        /// Its transaction was not relayed yet.
        Tx = "tx",
        /// Sent to be due later.
        Delay = "delay",
        /// An attempt failed.
        Retry = "retry",
        /// The handler said "not now".
        Snooze = "snooze",
        /// Given back unstarted.
        Limited = "limited",
        /// A carrier could not take it.
        Handoff = "handoff",
        /// Its worker's lease was lost.
        Reclaim = "reclaim",
    }
}

words! {
    /// The six kinds of the run log.
    EventKind {
        /// First stored in log or outbox, or redriven.
        Enqueue = "ENQUEUE",
        /// A worker leased it.
        Start = "START",
        /// Acknowledged.
        Success = "SUCCESS",
        /// Goes back after a run, or a refusal to run.
        Retry = "RETRY",
        /// No attempt will be made any more.
        Dlq = "DLQ",
        /// Put back without a verdict.
        Recover = "RECOVER",
    }
}

words! {
    /// How a run failed.
    Failure {
        /// The handler returned an error, or its task ended early.
        Error = "error",
        /// It outlived its timeout.
        Timeout = "timeout",
        /// It panicked.
        Panic = "panic",
        /// The handler asked to be called again.
        Asked = "asked",
    }
}

words! {
    /// Why a message was given back without a verdict.
    Release {
        /// No handler for its kind here.
        NoHandler = "no-handler",
        /// A limit, or a slow job before it.
        Limited = "limited",
        /// The worker stopped.
        Shutdown = "shutdown",
        /// The worker never registered the claim: its answer was lost.
        Abandoned = "abandoned",
    }
}

/// Why a message goes back, from which its outbox row and its event follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Back {
    /// An attempt failed.
    Failed(Failure),
    /// The handler said "not now".
    Snoozed,
    /// Given back by its holder.
    Released(Release),
    /// Its worker's lease was lost.
    Reclaimed,
}

impl Back {
    /// The reason of its outbox row.
    pub const fn outbox(self) -> OutboxReason {
        match self {
            Back::Failed(_) => OutboxReason::Retry,
            Back::Snoozed => OutboxReason::Snooze,
            Back::Released(_) => OutboxReason::Limited,
            Back::Reclaimed => OutboxReason::Reclaim,
        }
    }

    /// The kind and the reason of its event row.
    pub const fn event(self) -> (EventKind, &'static str) {
        match self {
            Back::Failed(failure) => (EventKind::Retry, failure.as_str()),
            Back::Snoozed => (EventKind::Retry, "snooze"),
            Back::Released(Release::NoHandler) => (EventKind::Retry, "no-handler"),
            Back::Released(Release::Limited) => (EventKind::Retry, "limited"),
            Back::Released(Release::Shutdown) => (EventKind::Recover, "shutdown"),
            Back::Released(Release::Abandoned) => (EventKind::Recover, "worker-dead"),
            Back::Reclaimed => (EventKind::Recover, "lease-expired"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back() {
        assert!(DropReason::ALL.iter().all(|reason| DropReason::parse(reason.as_str()) == Some(*reason)));
        assert_eq!(OutboxReason::parse("retry"), Some(OutboxReason::Retry));
        assert_eq!(EventKind::parse("dlq"), None);
    }

    #[test]
    fn a_shutdown_recovers_and_a_failure_retries() {
        assert_eq!(Back::Released(Release::Shutdown).event(), (EventKind::Recover, "shutdown"));
        assert_eq!(Back::Failed(Failure::Panic).event(), (EventKind::Retry, "panic"));
        assert_eq!(Back::Reclaimed.outbox(), OutboxReason::Reclaim);
    }
}
