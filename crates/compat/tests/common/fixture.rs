//! Jobs of other operators that are served: their fields, their children, their statuses.

use serde_json::{Value, json};
use trainyard_api::TrainingJob;
use trainyard_core::foreign::ForeignKind;

use super::common::{of_job, view};

/// An object of which one field was changed; `null` removes it.
pub fn changed(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, member) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    if value.is_null() {
        parent.remove(member).unwrap();
    } else {
        parent.insert(member.to_owned(), value);
    }
    object
}

/// A child with a status as the engine writes it.
pub fn at(mut child: TrainingJob, status: Value) -> TrainingJob {
    let mut whole = json!({
        "conditions": [{
            "type": "Accepted", "status": "True", "reason": "Valid", "message": "",
            "lastTransitionTime": "2026-02-03T04:00:00Z",
        }],
        "roles": [],
        "startTime": "2026-02-03T04:00:01Z",
    });
    let Value::Object(members) = status else {
        panic!("{status}")
    };
    whole.as_object_mut().unwrap().extend(members);
    child.status = Some(serde_json::from_value(whole).unwrap());
    child
}

/// The object after the status was written that its child gives it.
pub fn told(kind: &dyn ForeignKind, object: &Value, child: &TrainingJob) -> Value {
    let mut object = object.clone();
    if let Some(status) = kind.plan(&view(&object, of_job(child))).status {
        object["status"] = status;
    }
    object
}
