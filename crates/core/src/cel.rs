//! The expressions of declared frameworks: a part of CEL, with types and limits.
//!
//! An expression is read ([`syntax`]), given types ([`check`]) and evaluated ([`evaluate`]) for one
//! pod of one job ([`Subject`]). All that can be known without a job is an error of the expression:
//! names, fields, types, nested loops. What is left can fail only for some jobs: an index that is
//! out of range, a division by zero, a result that is too long. Every evaluation is metered, so
//! that none takes long.
//!
//! What is the same for all pods of a job is computed once for the job.
//!
//! It is no use of the crate `cel`: that has neither types nor limits, copies a list for every item
//! that `map` adds, and panics on some input, which would end the operator. Tests compare the
//! results.

mod check;
mod evaluate;
mod fault;
mod json;
mod meter;
mod subject;
mod syntax;
mod types;
mod value;

pub(crate) use check::{Checker, Vocabulary};
pub(crate) use evaluate::{Expression, Pod};
pub(crate) use meter::Meter;
pub(crate) use subject::{Names, RoleFacts, Subject};
pub(crate) use types::Type;
pub(crate) use value::Value;

#[cfg(test)]
mod tests;

/// What is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Where it is, in bytes from the start.
    pub(crate) at: usize,
    /// What it is, without a capital letter.
    pub(crate) message: String,
}

impl Problem {
    fn new(at: usize, message: impl Into<String>) -> Self {
        Self {
            at,
            message: message.into(),
        }
    }

    /// The sentence for those who wrote the expression.
    pub(crate) fn sentence(&self, source: &str) -> String {
        let before = source.get(..self.at).unwrap_or(source);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        match line {
            1 => format!("column {column}: {}", self.message),
            _ => format!("line {line}, column {column}: {}", self.message),
        }
    }
}
