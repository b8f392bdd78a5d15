//! What SQLite can do.

use millpond_core::capability::Capabilities;

/// A store in a file.
pub(crate) const FILE: Capabilities =
    Capabilities { store: "sqlite", survives_restart: true, many_processes: true, effects_once: true };

/// A store in memory: the same code, gone with its process.
pub(crate) const MEMORY: Capabilities =
    Capabilities { survives_restart: false, many_processes: false, ..FILE };
