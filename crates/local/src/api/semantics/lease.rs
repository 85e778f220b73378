//! Leases.

use k8s_openapi::api::coordination::v1::Lease;
use serde_json::Value;

use crate::api::error::FieldError;
use crate::api::rules::{Rules, Source, through};
use crate::api::store::Object;

/// The rules of leases.
pub(crate) struct Leases;

impl Rules for Leases {
    fn shape(&self, source: Source<'_>) -> Result<Object, String> {
        through::<Lease>(source)
    }

    fn check(&self, object: &Object) -> Vec<FieldError> {
        let limits = [
            ("leaseDurationSeconds", 1, "must be greater than 0"),
            ("leaseTransitions", 0, "must be greater than or equal to 0"),
        ];
        let wrong = limits.into_iter().filter_map(|(name, least, why)| {
            let value = object.get("spec")?.get(name).and_then(Value::as_i64)?;
            (value < least).then(|| FieldError::invalid(format!("spec.{name}"), &value.into(), why))
        });
        wrong.collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[rstest::rstest]
    #[case(json!({"leaseDurationSeconds": 1, "leaseTransitions": 0}), &[])]
    #[case(json!({}), &[])]
    #[case(
        json!({"leaseDurationSeconds": 0, "leaseTransitions": -1}),
        &["spec.leaseDurationSeconds", "spec.leaseTransitions"]
    )]
    fn numbers_are_not_too_small(#[case] spec: Value, #[case] fields: &[&str]) {
        let lease = json!({"spec": spec});
        let errors = Leases.check(lease.as_object().unwrap());
        let found: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(found, fields);
    }
}
