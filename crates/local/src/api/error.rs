//! Errors of requests and of fields. [`status`](super::status) makes a [`StatusError`] of field
//! errors.

use kube::core::Status;
use serde_json::Value;

/// The Status that a refused request is answered with.
pub(crate) type StatusError = Box<Status>;

/// A rule that a field breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The path of the field.
    pub field: String,
    /// The reason, from the vocabulary of Kubernetes.
    pub reason: &'static str,
    /// What is wrong, without the field.
    pub body: String,
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.body)
    }
}

impl FieldError {
    fn new(field: impl Into<String>, reason: &'static str, body: String) -> Self {
        let field = field.into();
        Self { field, reason, body }
    }

    /// A value is missing.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        let body = if detail.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {detail}")
        };
        Self::new(field, "FieldValueRequired", body)
    }

    /// A value is wrong.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new(
            field,
            "FieldValueInvalid",
            format!("Invalid value: {value}: {detail}"),
        )
    }

    /// A value is of the wrong type.
    pub fn wrong_type(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new(
            field,
            "FieldValueTypeInvalid",
            format!("Invalid value: {value}: {detail}"),
        )
    }

    /// A value that must be given once is there twice.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new(field, "FieldValueDuplicate", format!("Duplicate value: {value}"))
    }

    /// A value refers to something that does not exist.
    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::new(field, "FieldValueNotFound", format!("Not found: {value}"))
    }

    /// A value is not one of the supported ones.
    pub fn unsupported<'a>(
        field: impl Into<String>,
        value: &Value,
        supported: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let supported: Vec<String> = supported.into_iter().map(|word| format!("{word:?}")).collect();
        let body = format!(
            "Unsupported value: {value}: supported values: {}",
            supported.join(", ")
        );
        Self::new(field, "FieldValueNotSupported", body)
    }

    /// A field may not be given, or not be changed.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new(field, "FieldValueForbidden", format!("Forbidden: {detail}"))
    }

    /// A text is too long.
    pub fn too_long(field: impl Into<String>, most: u64) -> Self {
        Self::new(
            field,
            "FieldValueTooLong",
            format!("Too long: may not be more than {most} bytes"),
        )
    }

    /// A list or map has too many members.
    pub fn too_many(field: impl Into<String>, count: usize, most: u64) -> Self {
        let items = if most == 1 { "item" } else { "items" };
        let body = format!("Too many: {count}: must have at most {most} {items}");
        Self::new(field, "FieldValueTooMany", body)
    }
}
