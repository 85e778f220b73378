//! The port of a framework that has one.

use trainyard_api::{FieldError, TrainingJob};

use super::ports;
use crate::job::{Port, Ports, Replica, Validation};

/// The one port on which the pods of a framework find each other. It is named after the framework,
/// and users may give another number in `spec.framework.<name>.port`.
#[derive(Clone, Copy)]
pub(super) struct OnePort {
    pub(super) framework: &'static str,
    pub(super) default: i32,
    /// The number that the user of a job gave.
    pub(super) given: fn(&TrainingJob) -> Option<i32>,
    /// Whether a pod serves on it.
    pub(super) is_served_by: fn(&Replica<'_>) -> bool,
}

impl OnePort {
    pub(super) fn number(&self, job: &TrainingJob) -> i32 {
        (self.given)(job).unwrap_or(self.default)
    }

    pub(super) fn port(&self, job: &TrainingJob) -> Port {
        Port {
            name: self.framework.into(),
            number: self.number(job),
        }
    }
}

impl Ports for OnePort {
    fn ports(&self, replica: &Replica<'_>) -> Vec<Port> {
        let serves = (self.is_served_by)(replica);
        Vec::from_iter(serves.then(|| self.port(replica.job.object)))
    }
}

impl Validation for OnePort {
    fn check(&self, job: &TrainingJob) -> Vec<FieldError> {
        let path = format!("spec.framework.{}.port", self.framework);
        Vec::from_iter(ports::check(&path, (self.given)(job)))
    }
}
