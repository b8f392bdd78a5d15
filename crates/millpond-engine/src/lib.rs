//! millpond-engine
