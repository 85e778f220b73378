//! Whether somebody may create a request with a script: who may run commands in the pods of its
//! namespace may, because a script is one.

use serde_json::{Value, json};
use trainyard_api::{GROUP, ScaleKind};

use super::{Answer, BadReview, Reply, Request, Review, Status};

/// Reads a review. Returns the `SubjectAccessReview` that has to be asked, if the request has a
/// script that is new.
pub fn access_review(body: &[u8]) -> Result<Option<Value>, BadReview> {
    let review: Review = serde_json::from_slice(body)?;
    let request = review.request.ok_or(BadReview::Empty)?;
    if !has_new_script(&request) {
        return Ok(None);
    }
    let user = |field: &str| request.user_info.get(field).cloned().unwrap_or_default();
    let mut spec = json!({
        "user": user("username"),
        "resourceAttributes": {
            "namespace": request.namespace,
            "verb": "create",
            "resource": "pods",
            "subresource": "exec",
        },
    });
    for field in ["uid", "groups", "extra"] {
        let value = user(field);
        if !value.is_null() {
            spec[field] = value;
        }
    }
    Ok(Some(json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": spec,
    })))
}

fn has_new_script(request: &Request) -> bool {
    let is_request = request.kind.group == GROUP && ScaleKind::parse(&request.kind.kind).is_some();
    let is_new =
        request.operation != "UPDATE" || request.object.get("spec") != request.old_object.get("spec");
    is_request && is_new && has_script(&request.object)
}

/// Whether an object asks for a script.
pub(super) fn has_script(object: &Value) -> bool {
    object
        .pointer("/spec/script")
        .is_some_and(|script| !script.is_null())
}

/// The answer to a review whose user may not run scripts.
pub fn forbid(body: &[u8], why: &str) -> Result<Vec<u8>, BadReview> {
    let review: Review = serde_json::from_slice(body)?;
    let request = review.request.ok_or(BadReview::Empty)?;
    let message = format!("spec.script: {why}");
    let reply = Reply {
        api_version: &review.api_version,
        kind: "AdmissionReview",
        response: Answer {
            uid: &request.uid,
            allowed: false,
            patch_type: None,
            patch: None,
            status: Some(Status {
                outcome: "Failure",
                code: 403,
                reason: "Forbidden",
                message,
                details: super::Details {
                    name: &request.name,
                    group: &request.kind.group,
                    kind: &request.kind.kind,
                    causes: Vec::new(),
                },
            }),
        },
    };
    Ok(serde_json::to_vec(&reply)?)
}
