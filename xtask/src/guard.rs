//! Rules of the repository that would drift if nothing checked them. Each answers what breaks it, in sentences
//! that say what to do; `tests/` holds the repository to them and shows that each of them fires.

pub mod arrows;
pub mod crashes;
pub mod reports;
pub mod source;
pub mod text;
