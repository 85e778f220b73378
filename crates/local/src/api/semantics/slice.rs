//! EndpointSlices.

use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::Value;

use crate::api::error::FieldError;
use crate::api::rules::{Rules, Source, through};
use crate::api::store::Object;

/// The rules of slices.
pub(crate) struct Slices;

impl Rules for Slices {
    fn shape(&self, source: Source<'_>) -> Result<Object, String> {
        let mut slice = through::<EndpointSlice>(source)?;
        // Always written, also as null.
        slice.entry("endpoints").or_insert(Value::Null);
        slice.entry("ports").or_insert(Value::Null);
        let endpoints = slice.get_mut("endpoints").and_then(Value::as_array_mut);
        for endpoint in endpoints.into_iter().flatten().filter_map(Value::as_object_mut) {
            endpoint
                .entry("conditions")
                .or_insert_with(|| serde_json::json!({}));
        }
        Ok(slice)
    }

    fn default(&self, object: &mut Object) {
        let ports = object.get_mut("ports").and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
            port.entry("name").or_insert_with(|| "".into());
            port.entry("protocol").or_insert_with(|| "TCP".into());
        }
    }

    fn check(&self, object: &Object) -> Vec<FieldError> {
        let kinds = ["IPv4", "IPv6", "FQDN"];
        match object.get("addressType").and_then(Value::as_str) {
            None | Some("") => vec![FieldError::required("addressType", "")],
            Some(given) if !kinds.contains(&given) => {
                vec![FieldError::unsupported("addressType", &given.into(), kinds)]
            }
            Some(_) => Vec::new(),
        }
    }

    fn check_change(&self, new: &Object, old: &Object) -> Vec<FieldError> {
        if new.get("addressType") == old.get("addressType") {
            return Vec::new();
        }
        let value = new.get("addressType").cloned().unwrap_or_default();
        vec![FieldError::invalid("addressType", &value, "field is immutable")]
    }
}
