//! ConfigMaps and Secrets.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::Value;

use crate::api::error::FieldError;
use crate::api::meta::member;
use crate::api::rules::{Rules, Source, through};
use crate::api::store::Object;

const MAX_BYTES: usize = 1 << 20;

/// The rules of ConfigMaps.
pub(crate) struct ConfigMaps;

impl Rules for ConfigMaps {
    fn shape(&self, source: Source<'_>) -> Result<Object, String> {
        through::<ConfigMap>(source)
    }

    fn check(&self, object: &Object) -> Vec<FieldError> {
        check_data(object)
    }

    fn check_change(&self, new: &Object, old: &Object) -> Vec<FieldError> {
        check_immutable(new, old)
    }
}

/// The rules of Secrets.
pub(crate) struct Secrets;

impl Rules for Secrets {
    fn shape(&self, source: Source<'_>) -> Result<Object, String> {
        through::<Secret>(source)
    }

    fn default(&self, object: &mut Object) {
        object.entry("type").or_insert_with(|| "Opaque".into());
        let Some(Value::Object(texts)) = object.remove("stringData") else {
            return;
        };
        let data = member(object, "data");
        for (name, text) in texts {
            let bytes = ByteString(text.as_str().unwrap_or_default().as_bytes().to_vec());
            data.insert(name, serde_json::to_value(bytes).unwrap_or_default());
        }
    }

    fn check(&self, object: &Object) -> Vec<FieldError> {
        check_data(object)
    }

    fn check_change(&self, new: &Object, old: &Object) -> Vec<FieldError> {
        let mut errors = check_immutable(new, old);
        if new.get("type") != old.get("type") {
            let value = new.get("type").cloned().unwrap_or_default();
            errors.push(FieldError::invalid("type", &value, "field is immutable"));
        }
        errors
    }

    fn selectable(&self) -> &'static [&'static str] {
        &["type"]
    }
}

fn check_data(object: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for list in ["data", "binaryData"] {
        for (name, value) in object.get(list).and_then(Value::as_object).into_iter().flatten() {
            let fits = |sign: char| sign.is_ascii_alphanumeric() || "-_.".contains(sign);
            if name.is_empty()
                || name.len() > 253
                || !name.chars().all(fits)
                || name.starts_with("..")
                || name == "."
            {
                let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
                errors.push(FieldError::invalid(
                    format!("{list}[{name}]"),
                    &name.as_str().into(),
                    why,
                ));
            }
            size += value.as_str().map_or(0, str::len);
        }
    }
    if size > MAX_BYTES {
        errors.push(FieldError::too_long("", MAX_BYTES as u64));
    }
    errors
}

fn check_immutable(new: &Object, old: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old.get("immutable") != Some(&Value::Bool(true)) {
        return errors;
    }
    if new.get("immutable") != Some(&Value::Bool(true)) {
        errors.push(FieldError::forbidden(
            "immutable",
            "field is immutable when `immutable` is set",
        ));
    }
    for name in ["data", "binaryData"] {
        if new.get(name) != old.get(name) {
            errors.push(FieldError::forbidden(
                name,
                "field is immutable when `immutable` is set",
            ));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_of_a_secret_become_data() {
        let secret = json!({"data": {"a": "eA=="}, "stringData": {"a": "y", "b": "z"}});
        let mut secret = Secrets.shape(Source::Value(secret)).unwrap();
        Secrets.default(&mut secret);
        assert_eq!(secret["data"], json!({"a": "eQ==", "b": "eg=="}));
        assert_eq!(
            (secret.get("stringData"), &secret["type"]),
            (None, &json!("Opaque"))
        );
    }

    #[test]
    fn what_is_immutable_stays() {
        let of = |value: Value| value.as_object().unwrap().clone();
        let old = of(json!({"immutable": true, "data": {"a": "1"}}));
        assert!(ConfigMaps.check_change(&old, &old).is_empty());
        let new = of(json!({"data": {"a": "2"}}));
        assert_eq!(ConfigMaps.check_change(&new, &old).len(), 2);
    }
}
