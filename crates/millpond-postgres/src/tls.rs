//! TLS, by rustls with ring. The provider is named here and never installed for the whole program: that is the
//! program's to do.

use std::path::Path;
use std::sync::Arc;

use millpond_core::error::{Code, Error, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::location::{Location, Tls};

/// What makes connections secure, as the URL says.
///
/// # Errors
///
/// `invalid-config` when a file with authorities cannot be read.
pub(crate) fn connector(location: &Location) -> Result<MakeRustlsConnect> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(Code::Internal, "set TLS up").because(error))?;
    let config = match &location.tls {
        Tls::Disable | Tls::Prefer | Tls::Require => {
            let unchecked = Arc::new(Unchecked(provider));
            builder.dangerous().with_custom_certificate_verifier(unchecked).with_no_client_auth()
        }
        Tls::VerifyFull(file) => {
            builder.with_root_certificates(roots(file.as_deref(), location)?).with_no_client_auth()
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

fn roots(file: Option<&Path>, location: &Location) -> Result<RootCertStore> {
    let wrong = |why: String| {
        Error::new(Code::InvalidConfig, format!("open store `{}`", location.shown)).because(why)
    };
    let mut roots = RootCertStore::empty();
    match file {
        Some(file) => {
            let certificates = CertificateDer::pem_file_iter(file)
                .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>)
                .map_err(|error| wrong(format!("cannot read sslrootcert {}: {error}", file.display())))?;
            roots.add_parsable_certificates(certificates);
        }
        None => {
            // What cannot be read is no authority; with none at all the error below says so.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(wrong("no certificate authority was found to verify the server with".to_owned()));
    }
    Ok(roots)
}

/// Takes every certificate: for those modes that promise no more than an encrypted line.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
