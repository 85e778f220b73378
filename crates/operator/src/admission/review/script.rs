//! Whether somebody may create a request with a script: who may run commands in the pods of its
//! namespace may, because a script is one.

use serde_json::{Value, json};
use trainyard_api::{GROUP, ScaleKind};
use trainyard_core::foreign::{ChildKind, ForeignKind};

use super::{Answer, BadReview, Objects, Reply, Request, Review, Reviewer, Status};

/// The most bytes of what an API server says about a user: names of groups, above all.
const MAX_USER: usize = 64 * 1024;

impl Reviewer {
    /// Reads a review. Returns the `SubjectAccessReview` that has to be asked, if the request has a
    /// script that is new.
    pub fn access_review(&self, body: &[u8]) -> Result<Option<Value>, BadReview> {
        let Review { request, .. } = Review::parse(body)?;
        if !self.is_scale_request(&request) || !has_new_script(&request)? {
            return Ok(None);
        }
        Ok(Some(question(&request)?))
    }

    /// Whether what is reviewed is a request to change the size of a job, of ours or of another
    /// operator's.
    fn is_scale_request(&self, request: &Request<'_>) -> bool {
        let named = (&*request.kind.group, &*request.kind.kind);
        let mut foreign = self.kinds.iter().filter(|kind| may_have_script(**kind));
        named.0 == GROUP && ScaleKind::parse(named.1).is_some()
            || foreign.any(|kind| (kind.group(), kind.kind()) == named)
    }
}

/// Whether objects of a kind of another operator may have scripts.
pub(super) fn may_have_script(kind: &dyn ForeignKind) -> bool {
    matches!(kind.child_kind(), ChildKind::Request(_))
}

fn has_new_script(request: &Request<'_>) -> Result<bool, serde_json::Error> {
    // It was found not to be too large.
    let Objects { new, old } = request.decode()?;
    let is_new = request.operation != "UPDATE" || new.get("spec") != old.get("spec");
    Ok(is_new && has_script(&new))
}

/// Asks whether the user of a request may run commands in pods.
fn question(request: &Request<'_>) -> Result<Value, serde_json::Error> {
    // Nobody is somebody who may not.
    let info = request.user_info.map_or("null", serde_json::value::RawValue::get);
    let info: Value = serde_json::from_str(if info.len() > MAX_USER { "null" } else { info })?;
    let user = |field: &str| info.get(field).cloned().unwrap_or_default();
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
    Ok(json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": spec,
    }))
}

/// Whether an object asks for a script. Clients of other operators write an empty one for none.
pub(super) fn has_script(object: &Value) -> bool {
    object
        .pointer("/spec/script")
        .is_some_and(|script| !script.is_null() && *script != "")
}

/// The answer to a review whose user may not run scripts.
pub fn forbid(body: &[u8], why: &str) -> Result<Vec<u8>, BadReview> {
    let Review { api_version, request } = Review::parse(body)?;
    let message = format!("spec.script: {why}");
    let reply = Reply {
        api_version: &api_version,
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
