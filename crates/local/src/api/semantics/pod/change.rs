//! Which fields of a pod may be changed: hardly any.

use serde_json::{Map, Value};

use crate::api::error::FieldError;
use crate::api::store::Object;

pub(super) fn check(new: &Object, old: &Object) -> Vec<FieldError> {
    let empty = Map::new();
    let spec_of = |object: &Object| {
        object
            .get("spec")
            .and_then(Value::as_object)
            .unwrap_or(&empty)
            .clone()
    };
    let (mut after, before) = (spec_of(new), spec_of(old));
    let mut errors = Vec::new();
    check_deadline(&after, &before, &mut errors);
    check_tolerations(&after, &before, &mut errors);
    check_gates(&after, &before, &mut errors);
    // Restores the mutable fields; any remaining difference is an error.
    for name in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        put_back(&mut after, &before, name);
    }
    for list in ["containers", "initContainers"] {
        let former = before
            .get(list)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let items = after.get_mut(list).and_then(Value::as_array_mut);
        for (item, former) in items.into_iter().flatten().zip(&former) {
            if let (Value::Object(item), Value::Object(former)) = (item, former) {
                put_back(item, former, "image");
            }
        }
    }
    let negative = before
        .get("terminationGracePeriodSeconds")
        .and_then(Value::as_i64)
        .is_some_and(|n| n < 0);
    if negative && after.get("terminationGracePeriodSeconds").and_then(Value::as_i64) == Some(1) {
        put_back(&mut after, &before, "terminationGracePeriodSeconds");
    }
    if after != before {
        let why = "pod updates may not change fields other than `spec.containers[*].image`, \
                   `spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations` (only additions to \
                   existing tolerations), `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                   previously negative)";
        errors.push(FieldError::forbidden("spec", why));
    }
    errors
}

fn put_back(after: &mut Map<String, Value>, before: &Map<String, Value>, name: &str) {
    match before.get(name) {
        Some(value) => after.insert(name.to_owned(), value.clone()),
        None => after.remove(name),
    };
}

fn check_deadline(after: &Map<String, Value>, before: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let deadline = |spec: &Map<String, Value>| spec.get("activeDeadlineSeconds").and_then(Value::as_i64);
    let field = "spec.activeDeadlineSeconds";
    match (deadline(before), deadline(after)) {
        (Some(old), Some(new)) if new > old => {
            let why = format!("must be less than or equal to previous value {old}");
            errors.push(FieldError::invalid(field, &new.into(), &why));
        }
        (Some(_), None) => {
            errors.push(FieldError::invalid(
                field,
                &Value::Null,
                "must not update from a positive integer to nil value",
            ));
        }
        _ => {}
    }
}

fn list<'a>(spec: &'a Map<String, Value>, name: &str) -> &'a [Value] {
    spec.get(name)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn check_tolerations(after: &Map<String, Value>, before: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    // Only tolerationSeconds may differ.
    let same = |a: &Value, b: &Value| {
        ["key", "operator", "value", "effect"]
            .iter()
            .all(|name| a.get(name) == b.get(name))
    };
    let after = list(after, "tolerations");
    if !list(before, "tolerations")
        .iter()
        .all(|old| after.iter().any(|new| same(old, new)))
    {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden("spec.tolerations", why));
    }
}

fn check_gates(after: &Map<String, Value>, before: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let before = list(before, "schedulingGates");
    if let Some(new) = list(after, "schedulingGates")
        .iter()
        .find(|gate| !before.contains(gate))
    {
        let name = new.get("name").and_then(Value::as_str).unwrap_or_default();
        let why = format!("only deletion is allowed, but found new scheduling gate {name:?}");
        errors.push(FieldError::forbidden("spec.schedulingGates", &why));
    }
}

/// A container that has terminated for good must not run again.
pub(super) fn check_status(new: &Object, old: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let policy = old
        .get("spec")
        .and_then(|spec| spec.get("restartPolicy")?.as_str());
    let policy = policy.unwrap_or("Always");
    if policy == "Always" {
        return errors;
    }
    let statuses = |object: &Object| -> Vec<Value> {
        let status = object.get("status");
        status
            .and_then(|status| status.get("containerStatuses")?.as_array())
            .cloned()
            .unwrap_or_default()
    };
    let former = statuses(old);
    for (at, status) in statuses(new).iter().enumerate() {
        let Some(before) = former.iter().find(|one| one.get("name") == status.get("name")) else {
            continue;
        };
        let Some(ended) = before.pointer("/state/terminated") else {
            continue;
        };
        let failed = ended.get("exitCode").and_then(Value::as_i64) != Some(0);
        if (policy == "OnFailure" && failed) || status.pointer("/state/terminated").is_some() {
            continue;
        }
        let why = "may not be transitioned to non-terminated state";
        errors.push(FieldError::forbidden(
            format!("status.containerStatuses[{at}].state"),
            why,
        ));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(spec: &Value) -> Object {
        json!({"spec": spec}).as_object().unwrap().clone()
    }

    #[test]
    fn an_image_may_change_and_a_command_may_not() {
        let before = pod(&json!({"containers": [{"image": "a", "command": ["x"]}]}));
        assert!(
            check(
                &pod(&json!({"containers": [{"image": "b", "command": ["x"]}]})),
                &before
            )
            .is_empty()
        );
        let errors = check(
            &pod(&json!({"containers": [{"image": "a", "command": ["y"]}]})),
            &before,
        );
        assert_eq!(errors[0].field, "spec");
        assert!(
            !check(
                &pod(&json!({"nodeName": "n", "containers": [{"image": "a", "command": ["x"]}]})),
                &before
            )
            .is_empty()
        );
    }

    #[test]
    fn deadlines_only_come_nearer_gates_only_go_tolerations_only_come() {
        let before = pod(
            &json!({"activeDeadlineSeconds": 10, "schedulingGates": [{"name": "a"}],
            "tolerations": [{"key": "k"}]}),
        );
        let after = |deadline: Value, gates: Value, tolerations: Value| {
            let new = pod(
                &json!({"activeDeadlineSeconds": deadline, "schedulingGates": gates, "tolerations": tolerations}),
            );
            check(&new, &before)
                .into_iter()
                .map(|error| error.field)
                .collect::<Vec<_>>()
        };
        assert!(after(json!(5), json!([]), json!([{"key": "k"}, {"key": "l"}])).is_empty());
        assert_eq!(
            after(json!(11), json!([{"name": "a"}, {"name": "b"}]), json!([])),
            [
                "spec.activeDeadlineSeconds",
                "spec.tolerations",
                "spec.schedulingGates"
            ]
        );
    }

    #[test]
    fn what_has_ended_for_good_does_not_come_back() {
        let with = |policy: &str, code: i32, state: Value| {
            let old = json!({"spec": {"restartPolicy": policy}, "status": {"containerStatuses": [
                {"name": "a", "state": {"terminated": {"exitCode": code}}}]}});
            let new = json!({"status": {"containerStatuses": [{"name": "a", "state": state}]}});
            check_status(new.as_object().unwrap(), old.as_object().unwrap()).len()
        };
        assert_eq!(with("Never", 1, json!({"running": {}})), 1);
        assert_eq!(with("OnFailure", 1, json!({"running": {}})), 0);
        assert_eq!(with("OnFailure", 0, json!({"running": {}})), 1);
        assert_eq!(with("Always", 0, json!({"running": {}})), 0);
        assert_eq!(with("Never", 1, json!({"terminated": {"exitCode": 1}})), 0);
    }
}
