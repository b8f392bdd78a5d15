//! What MySQL and MariaDB can do.

use millpond_core::capability::Capabilities;

/// Everything that there is.
pub(crate) const MYSQL: Capabilities =
    Capabilities { store: "mysql", survives_restart: true, many_processes: true, effects_once: true };
