//! The path of a field, written only where something is wrong with it: the operator checks jobs all
//! the time.

use std::fmt;

use super::FieldError;

/// Where a field is.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    parent: Option<&'a At<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> At<'a> {
    /// A field of the object itself.
    pub(super) const fn root(field: &'a str) -> Self {
        Self {
            parent: None,
            step: Step::Field(field),
        }
    }

    /// A field of what is here.
    pub(super) const fn field(&'a self, name: &'a str) -> Self {
        self.then(Step::Field(name))
    }

    /// An item of the list that is here.
    pub(super) const fn index(&'a self, position: usize) -> Self {
        self.then(Step::Index(position))
    }

    /// An entry of the map that is here.
    pub(super) const fn key(&'a self, key: &'a str) -> Self {
        self.then(Step::Key(key))
    }

    const fn then(&'a self, step: Step<'a>) -> Self {
        Self {
            parent: Some(self),
            step,
        }
    }

    /// What is wrong here.
    pub(super) fn error(&self, message: impl Into<String>) -> FieldError {
        FieldError::new(self.to_string(), message)
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Field(name) if self.parent.is_some() => write!(f, ".{name}"),
            Step::Field(name) => f.write_str(name),
            Step::Index(position) => write!(f, "[{position}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}
