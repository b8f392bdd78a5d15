//! What tests of Millpond are made of: a clock that is told the time, a bench with nodes on a fresh store, the
//! contract that every store must pass, servers, and the judge of a recorded run.

pub mod bench;
pub mod clock;
pub mod contract;
pub mod faults;
pub mod gate;
pub mod holder;
pub mod judge;
pub mod operate;
pub mod proxy;
pub mod recorder;
pub mod servers;
pub mod wire;
