//! millpond-sqlite
