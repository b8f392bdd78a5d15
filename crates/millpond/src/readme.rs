//! The programs of the README are compiled like every other example. They are not run: they would leave a file
//! where they are run, and work until they are stopped. The same ones are run in `front.md`.

#[doc = include_str!("../../../README.md")]
struct Readme;
