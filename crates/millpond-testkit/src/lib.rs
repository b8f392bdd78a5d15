//! millpond-testkit
pub mod judge;
