//! Known bugs, by name. The crash tests switch one on and must catch it; a release has none of them.

/// Whether the named bug is switched on, by `MILLPOND_SABOTAGE`, in a build made for it.
#[cfg(feature = "sabotage")]
pub(crate) fn sabotaged(name: &str) -> bool {
    use std::sync::OnceLock;
    static CHOSEN: OnceLock<String> = OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("MILLPOND_SABOTAGE").unwrap_or_default()) == name
}

/// Never.
#[cfg(not(feature = "sabotage"))]
pub(crate) const fn sabotaged(_name: &str) -> bool {
    false
}
