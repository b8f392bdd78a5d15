//! The programs of the guide are run like every other example.

#[doc = include_str!("../../../docs/testing.md")]
struct Guide;
