//! What expressions result in.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A value. Copies share what they hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Bool(bool),
    Int(i64),
    Text(Arc<str>),
    List(Arc<Vec<Value>>),
    Map(Arc<BTreeMap<Arc<str>, Value>>),
    /// A role of the job, by rank.
    Role(usize),
}

impl Value {
    pub(crate) fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(text.into())
    }

    pub(super) fn list(items: Vec<Self>) -> Self {
        Self::List(Arc::new(items))
    }

    /// The length of [`Value::plain`].
    pub(crate) fn plain_length(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            other => other.plain().map_or(0, |text| text.len()),
        }
    }

    /// A boolean, a number or a text as text: how a variable holds it.
    pub(crate) fn plain(&self) -> Option<String> {
        match self {
            Self::Bool(value) => Some(value.to_string()),
            Self::Int(number) => Some(number.to_string()),
            Self::Text(text) => Some((**text).to_owned()),
            _ => None,
        }
    }
}
