//! What Postgres can do.

use millpond_core::capability::Capabilities;

/// Everything that there is.
pub(crate) const POSTGRES: Capabilities =
    Capabilities { store: "postgres", survives_restart: true, many_processes: true, effects_once: true };
