//! The signature of the Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use crate::target::Refused;

const PREFIX: &str = "whsec_";

/// A secret that signs. It is never shown.
#[derive(Clone)]
pub struct Secret(hmac::Key);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl Secret {
    /// Reads a secret: base64 of 24 to 64 bytes, with or without `whsec_` before it.
    ///
    /// # Errors
    ///
    /// [`Refused::Secret`], which does not repeat it.
    pub fn read(text: &str) -> Result<Self, Refused> {
        let text = text.trim();
        let bytes =
            STANDARD.decode(text.strip_prefix(PREFIX).unwrap_or(text)).map_err(|_| Refused::Secret)?;
        if !(24..=64).contains(&bytes.len()) {
            return Err(Refused::Secret);
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }
}

/// The value of `webhook-signature`: one signature for each secret, so that two hold while one replaces the other.
pub fn signature(secrets: &[Secret], id: &str, timestamp: i64, body: &[u8]) -> String {
    let sign = |Secret(key): &Secret| {
        let mut context = hmac::Context::with_key(key);
        context.update(format!("{id}.{timestamp}.").as_bytes());
        context.update(body);
        format!("v1,{}", STANDARD.encode(context.sign()))
    };
    secrets.iter().map(sign).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    /// The example of the Standard Webhooks' own specification.
    #[test]
    fn the_published_example_is_signed_as_published() {
        let secret = Secret::read(SECRET).unwrap();
        let signed =
            signature(&[secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn two_secrets_give_two_signatures() {
        let other = Secret::read("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").unwrap();
        let signed = signature(&[Secret::read(SECRET).unwrap(), other], "a", 1, b"x");
        assert_eq!(signed.split(' ').count(), 2);
        assert!(signed.split(' ').all(|one| one.starts_with("v1,")));
    }

    #[test]
    fn a_secret_that_is_too_short_or_no_base64_is_refused_without_being_repeated() {
        for text in ["", "whsec_", "tulip", "whsec_dHVsaXA=", "not base64 at all, but long enough for it"] {
            let refused = Secret::read(text).unwrap_err();
            assert!(!refused.to_string().contains("tulip"), "{refused}");
        }
        assert_eq!(format!("{:?}", Secret::read(SECRET).unwrap()), "Secret(***)");
    }
}
