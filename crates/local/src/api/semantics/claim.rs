//! PersistentVolumeClaims.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use crate::api::Shared;
use crate::api::error::{FieldError, StatusError};
use crate::api::meta::member;
use crate::api::rules::{Rules, Source, through};
use crate::api::store::Object;

/// The rules of claims.
pub(crate) struct Claims;

impl Rules for Claims {
    fn shape(&self, source: Source<'_>) -> Result<Object, String> {
        through::<PersistentVolumeClaim>(source)
    }

    fn default(&self, object: &mut Object) {
        member(object, "spec")
            .entry("volumeMode")
            .or_insert_with(|| "Filesystem".into());
    }

    fn prepare(&self, object: &mut Object, _: &Shared) -> Result<(), StatusError> {
        object.insert("status".into(), json!({"phase": "Pending"}));
        Ok(())
    }

    fn check(&self, object: &Object) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let spec = object.get("spec");
        let modes = spec.and_then(|spec| spec.get("accessModes")?.as_array());
        if modes.is_none_or(Vec::is_empty) {
            errors.push(FieldError::required(
                "spec.accessModes",
                "at least 1 access mode is required",
            ));
        }
        let possible = [
            "ReadOnlyMany",
            "ReadWriteMany",
            "ReadWriteOnce",
            "ReadWriteOncePod",
        ];
        for mode in modes.into_iter().flatten() {
            if !mode.as_str().is_some_and(|mode| possible.contains(&mode)) {
                errors.push(FieldError::unsupported("spec.accessModes", mode, possible));
            }
        }
        if object
            .get("spec")
            .and_then(|spec| spec.pointer("/resources/requests/storage"))
            .is_none()
        {
            errors.push(FieldError::required("spec.resources[storage]", ""));
        }
        errors
    }

    fn check_change(&self, new: &Object, old: &Object) -> Vec<FieldError> {
        // Only the volume may be set, and the size may grow.
        let rest = |object: &Object| {
            let mut spec = object.get("spec").cloned().unwrap_or_default();
            if let Some(spec) = spec.as_object_mut() {
                spec.remove("resources");
                spec.remove("volumeName");
            }
            spec
        };
        let volume = |object: &Object| {
            let name = object
                .get("spec")
                .and_then(|spec| spec.get("volumeName")?.as_str());
            name.unwrap_or_default().to_owned()
        };
        let moved = !volume(old).is_empty() && volume(old) != volume(new);
        if rest(new) == rest(old) && !moved {
            return Vec::new();
        }
        let why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        vec![FieldError::forbidden("spec", why)]
    }

    fn selectable(&self) -> &'static [&'static str] {
        &["status.phase"]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_claim_may_only_be_bound_once() {
        let claim = |volume: &str, mode: &str| {
            let claim = json!({"spec": {"volumeName": volume, "accessModes": [mode]}});
            claim.as_object().cloned().unwrap_or_default()
        };
        let free: Value = json!({"spec": {"accessModes": ["ReadWriteOnce"]}});
        let free = free.as_object().unwrap();
        assert!(Claims.check_change(&claim("v", "ReadWriteOnce"), free).is_empty());
        assert!(
            !Claims
                .check_change(&claim("w", "ReadWriteOnce"), &claim("v", "ReadWriteOnce"))
                .is_empty()
        );
        assert!(
            !Claims
                .check_change(&claim("v", "ReadWriteMany"), &claim("v", "ReadWriteOnce"))
                .is_empty()
        );
    }
}
