//! Signed webhooks, and the one client through which Millpond speaks to the outside.
//!
//! A URL is what somebody wrote, so it may point inwards: at a metadata service, at a database's port, at this very
//! host. [`Guard`] decides which addresses may be reached, and the client connects to nothing that was not decided
//! about. [`Webhook::post`] sends one signed request with the headers of the Standard Webhooks.
//!
//! ```
//! use millpond_webhook::{Guard, Webhook};
//!
//! let webhook = Webhook::new("https://example.com/hook", Guard::default())?;
//! let webhook = webhook.signed("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
//! assert!(Webhook::new("http://user:secret@example.com/", Guard::default()).is_err());
//! # Ok::<(), millpond_webhook::Refused>(())
//! ```

mod client;
mod guard;
mod post;
mod sign;
mod target;

pub use guard::{Forbidden, Guard};
pub use post::{Failed, Webhook};
pub use sign::{Secret, signature};
pub use target::Refused;
