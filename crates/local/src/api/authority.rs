//! The authority that pods are told to trust.

use std::sync::OnceLock;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, KeyUsagePurpose};

/// The authority of one cluster. Nothing listens, so that it has nothing to sign, and its key is not kept; programs that
/// read it at their start find a certificate.
#[derive(Default)]
pub(crate) struct Authority(OnceLock<Option<String>>);

impl Authority {
    /// Its certificate; none if none can be made here.
    pub(crate) fn certificate(&self) -> Option<&str> {
        let made = self.0.get_or_init(|| {
            let made = make();
            if let Err(error) = &made {
                tracing::warn!(%error, "pods have no authority to trust: its certificate could not be made");
            }
            made.ok()
        });
        made.as_deref()
    }
}

fn make() -> Result<String, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut parameters = CertificateParams::default();
    parameters
        .distinguished_name
        .push(DnType::CommonName, "trainyard-embedded");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(parameters.self_signed(&key)?.pem())
}
