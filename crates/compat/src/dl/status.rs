//! The status of a job, which it never had.

use serde_json::{Map, Value, json};

use crate::conditions;
use crate::report::Report;

/// The status of an object.
pub fn status(report: &Report<'_>) -> Value {
    let mut status = conditions::status(report);
    let roles = report.child.into_iter().flat_map(|child| &child.spec.roles);
    let (mut ready, mut replicas) = (0, 0);
    let mut types = Map::new();
    for role in roles {
        let state = report.role(&role.name).cloned().unwrap_or_default();
        let of_role = role.replicas.unwrap_or(1);
        ready += state.ready;
        replicas += of_role;
        types.insert(
            role.name.clone(),
            json!({
                "replicas": of_role,
                "active": state.active,
                "ready": state.ready,
                "succeeded": state.succeeded,
                "failed": state.failed,
            }),
        );
    }
    if !types.is_empty() {
        status.insert("ready".to_owned(), json!(format!("{ready}/{replicas}")));
        status.insert("replicaStatuses".to_owned(), types.into());
    }
    let result = report.status().and_then(|status| status.result.as_ref());
    status.extend(result.map(|result| ("result".to_owned(), json!(result))));
    status.into()
}
