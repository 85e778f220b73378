//! What expressions result in.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fault::Fault;
use super::meter::Meter;

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

    /// Returns true if the values are the same. Every part is paid for: a short expression can have
    /// the same list in a list a million times.
    pub(super) fn equals(&self, other: &Self, meter: &mut Meter) -> Result<bool, Fault> {
        meter.spend(1)?;
        match (self, other) {
            (Self::Text(one), Self::Text(other)) => equal_texts(one, other, meter),
            (Self::List(one), Self::List(other)) if one.len() == other.len() => {
                for (one, other) in one.iter().zip(&**other) {
                    if !one.equals(other, meter)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Self::Map(one), Self::Map(other)) if one.len() == other.len() => {
                for ((key, one), (other_key, other)) in one.iter().zip(&**other) {
                    if !equal_texts(key, other_key, meter)? || !one.equals(other, meter)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Self::List(_), Self::List(_)) | (Self::Map(_), Self::Map(_)) => Ok(false),
            // Neither has parts.
            _ => Ok(self == other),
        }
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

fn equal_texts(one: &str, other: &str, meter: &mut Meter) -> Result<bool, Fault> {
    meter.spend_comparison(one, other)?;
    Ok(one == other)
}
