//! The certificate of one process, which nobody else serves or stores.

use jiff::Timestamp;

use super::SecretData;
use super::issue::{IssueError, carry_out};
use super::plan::CertPlan;

pub struct OwnCertificate {
    names: Vec<String>,
    data: SecretData,
}

impl OwnCertificate {
    /// Makes an authority, and a certificate for these DNS names and IP addresses.
    pub fn issue(names: Vec<String>, now: Timestamp) -> Result<Self, IssueError> {
        let mut own = Self {
            names,
            data: SecretData::default(),
        };
        let why = "this process has none yet".to_owned();
        own.apply(&CertPlan::NewAuthority { why }, now)?;
        Ok(own)
    }

    /// Makes another certificate, signed by the same authority.
    pub fn renew(&mut self, now: Timestamp) -> Result<(), IssueError> {
        let why = "it would end".to_owned();
        self.apply(&CertPlan::IssueLeaf { why }, now)
    }

    pub fn data(&self) -> &SecretData {
        &self.data
    }

    fn apply(&mut self, plan: &CertPlan, now: Timestamp) -> Result<(), IssueError> {
        if let Some(data) = carry_out(plan, Some(&self.data), now, &self.names)? {
            self.data = data;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn another_certificate_has_the_same_authority() {
        let now = Timestamp::now();
        let mut own = OwnCertificate::issue(vec!["127.0.0.1".to_owned()], now).unwrap();
        let first = own.data().clone();
        let later = now + Duration::from_hours(30 * 24);
        own.renew(later).unwrap();
        assert_eq!(own.data().ca_crt, first.ca_crt);
        assert_ne!(own.data().tls_crt, first.tls_crt);
        super::super::ServingCert::default().load(own.data()).unwrap();
    }
}
