//! The status of an MPIJob, which it never had.

use serde_json::{Value, json};

use crate::conditions;
use crate::mpi::WORKER;
use crate::report::Report;

/// The status of an object.
pub fn status(report: &Report<'_>) -> Value {
    let ready = report.role(WORKER).map_or(0, |worker| worker.ready);
    let workers = report.object.pointer("/spec/numWorkers").and_then(Value::as_i64);
    let mut status = conditions::status(report);
    status.insert(
        "readyWorkers".to_owned(),
        json!(format!("{ready}/{}", workers.unwrap_or_default())),
    );
    status.into()
}
