//! The embedded API and a real kube-apiserver, asked the same: seeded random operations, whose
//! answers and watch streams must be alike but for the [known differences](known).
//!
//! An [`Operation`] is symbolic: each [`Side`] fills in its own UIDs and versions.

pub mod history;
pub mod known;
mod normalise;
mod objects;
mod operation;
pub mod pods;
mod side;
mod stream;

pub use normalise::Answer;
pub use objects::Kind;
pub use operation::{Operation, RandomOperations};
pub use side::Side;
pub use stream::Stream;

use serde_json::Value;

/// The kinds that operations are about.
pub fn kinds() -> &'static [Kind] {
    objects::KINDS
}

/// Compares two answers to the same question; a description if they differ in a way that is not
/// known.
pub fn compare(step: usize, operation: &Operation, real: &Answer, embedded: &Answer) -> Option<String> {
    let (mut real, mut embedded) = (real.clone(), embedded.clone());
    known::remove_known(operation, &mut real, &mut embedded);
    if real == embedded {
        return None;
    }
    let differs = if real.error.is_none() && embedded.error.is_none() && real.code == embedded.code {
        difference(&real.object, &embedded.object)
    } else {
        format!("  real:     {real}\n  embedded: {embedded}")
    };
    Some(format!("step {step}: {operation:?}\n{differs}"))
}

/// How one object would have to be changed to be the other.
pub fn difference(real: &Value, embedded: &Value) -> String {
    let line = |change: &json_patch::PatchOperation| format!("  embedded: {change}");
    let changes = json_patch::diff(real, embedded);
    changes.iter().map(line).collect::<Vec<_>>().join("\n")
}
