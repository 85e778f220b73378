//! JSON patches and merge patches.

use json_patch::{AddOperation, PatchOperation, ReplaceOperation};
use serde_json::Value;

use crate::api::error::StatusError;
use crate::api::status;

#[derive(Debug)]
pub(crate) enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
}

impl Patch {
    /// Parses a patch by its content type.
    pub(crate) fn read(content_type: &str, body: &[u8]) -> Result<Self, StatusError> {
        let kind = content_type.split(';').next().unwrap_or_default().trim();
        let unreadable =
            |error: serde_json::Error| status::bad_request(format!("error decoding patch: {error}"));
        match kind {
            "application/json-patch+json" => serde_json::from_slice(body).map(Self::Json).map_err(unreadable),
            "application/merge-patch+json" => {
                let patch: Value = serde_json::from_slice(body).map_err(unreadable)?;
                if !patch.is_object() {
                    return Err(status::bad_request(
                        "error decoding patch: a merge patch is a JSON object",
                    ));
                }
                Ok(Self::Merge(patch))
            }
            "application/apply-patch+yaml" => Err(status::unsupported_media_type(
                "server-side apply is not served by the embedded cluster: create or replace the object, or send \
                 application/merge-patch+json",
            )),
            "application/strategic-merge-patch+json" => Err(status::unsupported_media_type(
                "strategic merge patches are not served by the embedded cluster: send application/merge-patch+json \
                 or application/json-patch+json",
            )),
            other => Err(status::unsupported_media_type(format!(
                "the body of the request was in an unknown format ({other:?}) - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json"
            ))),
        }
    }

    pub(crate) fn apply(&self, mut object: Value) -> Result<Value, StatusError> {
        match self {
            Self::Json(patch) => {
                for operation in &patch.0 {
                    let operation = lenient(operation, &object);
                    json_patch::patch(&mut object, &[operation]).map_err(|error| {
                        status::unfit_patch(format!(
                            "the server rejected our request due to an error in our request: {error}"
                        ))
                    })?;
                }
            }
            Self::Merge(patch) => json_patch::merge(&mut object, patch),
        }
        Ok(object)
    }

    /// Whether the patch reads or writes a member of the object, or anything below it.
    pub(crate) fn mentions(&self, member: &str) -> bool {
        let within = |path: &json_patch::jsonptr::Pointer| {
            let first = path.first();
            first.is_none_or(|first| first.decoded() == member)
        };
        match self {
            Self::Merge(patch) => patch.get(member).is_some(),
            Self::Json(patch) => patch.0.iter().any(|operation| {
                let from = match operation {
                    PatchOperation::Move(operation) => Some(&operation.from),
                    PatchOperation::Copy(operation) => Some(&operation.from),
                    _ => None,
                };
                within(operation.path()) || from.is_some_and(|from| within(from))
            }),
        }
    }

    /// Whether the patch has a resourceVersion as its precondition.
    pub(crate) fn names_version(&self) -> bool {
        match self {
            Self::Merge(patch) => patch
                .pointer("/metadata/resourceVersion")
                .is_some_and(|version| !version.is_null()),
            Self::Json(patch) => patch
                .0
                .iter()
                .any(|operation| operation.path().as_str() == "/metadata/resourceVersion"),
        }
    }
}

/// Servers allow to replace a member that does not exist, though the standard does not.
fn lenient(operation: &PatchOperation, object: &Value) -> PatchOperation {
    if let PatchOperation::Replace(ReplaceOperation { path, value }) = operation
        && let Some((parent, _)) = path.split_back()
        && object.pointer(parent.as_str()).is_some_and(Value::is_object)
    {
        return PatchOperation::Add(AddOperation {
            path: path.clone(),
            value: value.clone(),
        });
    }
    operation.clone()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_forms_are_applied() {
        let object = json!({"a": 1, "b": {"c": [1, 2]}});
        let merge = Patch::read("application/merge-patch+json", br#"{"a":null,"b":{"d":3}}"#).unwrap();
        assert_eq!(
            merge.apply(object.clone()).unwrap(),
            json!({"b": {"c": [1, 2], "d": 3}})
        );
        let patch = br#"[{"op":"test","path":"/a","value":1},{"op":"remove","path":"/b/c/0"}]"#;
        let patch = Patch::read("application/json-patch+json; charset=utf-8", patch).unwrap();
        assert_eq!(patch.apply(object).unwrap(), json!({"a": 1, "b": {"c": [2]}}));
        assert_eq!(patch.apply(json!({"a": 2})).unwrap_err().code, 422);
    }

    #[test]
    fn what_is_not_there_can_be_replaced_in_an_object_and_not_in_a_list() {
        let patch = |path: &str| {
            let patch = json!([{"op": "replace", "path": path, "value": 1}]);
            Patch::read("application/json-patch+json", patch.to_string().as_bytes()).unwrap()
        };
        let object = json!({"a": {}, "l": [0]});
        assert_eq!(
            patch("/a/b").apply(object.clone()).unwrap(),
            json!({"a": {"b": 1}, "l": [0]})
        );
        for path in ["/l/1", "/absent/b"] {
            assert_eq!(patch(path).apply(object.clone()).unwrap_err().code, 422);
        }
    }

    #[rstest::rstest]
    #[case("application/apply-patch+yaml", 415)]
    #[case("application/strategic-merge-patch+json", 415)]
    #[case("text/plain", 415)]
    #[case("application/merge-patch+json", 400)]
    #[case("application/json-patch+json", 400)]
    fn what_is_not_served_is_refused(#[case] content_type: &str, #[case] code: u16) {
        assert_eq!(Patch::read(content_type, b"[]x").unwrap_err().code, code);
    }

    #[rstest::rstest]
    #[case(r#"[{"op":"add","path":"/status/phase","value":1}]"#, false)]
    #[case(r#"[{"op":"add","path":"/specs/phase","value":1}]"#, false)]
    #[case(r#"[{"op":"test","path":"/spec/a","value":1}]"#, true)]
    #[case(r#"[{"op":"copy","path":"/status/phase","from":"/spec/a"}]"#, true)]
    #[case(r#"[{"op":"move","path":"/spec","from":"/status"}]"#, true)]
    #[case(r#"[{"op":"replace","path":"","value":{}}]"#, true)]
    fn a_patch_says_what_it_is_about(#[case] patch: &str, #[case] of_spec: bool) {
        let patch = Patch::read("application/json-patch+json", patch.as_bytes()).unwrap();
        assert_eq!(patch.mentions("spec"), of_spec);
    }

    #[test]
    fn a_merge_patch_says_what_it_is_about() {
        let merge = |patch: &str| Patch::read("application/merge-patch+json", patch.as_bytes()).unwrap();
        assert!(merge(r#"{"spec":null}"#).mentions("spec"));
        assert!(!merge(r#"{"status":{"spec":1}}"#).mentions("spec"));
    }

    #[test]
    fn a_patch_may_be_for_one_version_only() {
        let merge = |patch: &str| Patch::read("application/merge-patch+json", patch.as_bytes()).unwrap();
        assert!(merge(r#"{"metadata":{"resourceVersion":"7"}}"#).names_version());
        assert!(!merge(r#"{"metadata":{"resourceVersion":null}}"#).names_version());
        assert!(!merge(r#"{"metadata":{"labels":{}}}"#).names_version());
    }
}
