//! millpond-core
