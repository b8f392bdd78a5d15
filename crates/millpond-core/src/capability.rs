//! What a store or carrier can do, as data. Asking for what is missing is an error at start.

/// What a store can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The word for it in messages: "sqlite".
    pub store: &'static str,
    /// What was stored is still there after a restart.
    pub survives_restart: bool,
    /// Several processes may share it.
    pub many_processes: bool,
    /// A handler can commit its writes together with its acknowledgement.
    pub effects_once: bool,
}
