//! The types of expressions.

use std::fmt;

/// What an expression results in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Bool,
    Int,
    Text,
    List(Box<Type>),
    /// A map whose keys are texts.
    Map(Box<Type>),
    /// An item of `job.roles`.
    Role,
    /// Values of several types: it can be written as JSON, and nothing else.
    Any,
    /// What an empty list or map holds: it fits every type.
    Nothing,
}

impl Type {
    pub(super) fn list(of: Self) -> Self {
        Self::List(Box::new(of))
    }

    pub(super) fn map(to: Self) -> Self {
        Self::Map(Box::new(to))
    }

    /// The type of values that are of either type.
    pub(super) fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, other) | (other, Self::Nothing) => other,
            (Self::List(one), Self::List(other)) => Self::list(one.join(*other)),
            (Self::Map(one), Self::Map(other)) => Self::map(one.join(*other)),
            (one, other) if one == other => one,
            _ => Self::Any,
        }
    }

    /// Returns true if values of the type fit where another is expected.
    pub(super) fn fits(&self, expected: &Self) -> bool {
        match (self, expected) {
            (Self::Nothing, _) => true,
            (Self::List(one), Self::List(other)) | (Self::Map(one), Self::Map(other)) => one.fits(other),
            (one, other) => one == other,
        }
    }

    /// Returns true if values of the type can be written as JSON.
    pub(super) fn is_data(&self) -> bool {
        match self {
            Self::List(inner) | Self::Map(inner) => inner.is_data(),
            Self::Role => false,
            _ => true,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("a boolean"),
            Self::Int => f.write_str("a number"),
            Self::Text => f.write_str("a string"),
            Self::List(_) => f.write_str("a list"),
            Self::Map(_) => f.write_str("a map"),
            Self::Role => f.write_str("a role"),
            Self::Any => f.write_str("a value of several types"),
            Self::Nothing => f.write_str("nothing"),
        }
    }
}
