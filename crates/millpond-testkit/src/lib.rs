//! millpond-testkit
