//! The state of a namespace without what differs from run to run.

use std::collections::BTreeMap;

use anyhow::Result;
use kube::Client;
use kube::api::{ListParams, Request};
use serde_json::Value;

const KINDS: [(&str, &str); 3] = [
    ("pods", "/api/v1"),
    ("services", "/api/v1"),
    ("trainingjobs", "/apis/trainyard.dev/v1alpha1"),
];

/// Fields that differ from run to run: identities, versions, times, addresses that the server
/// gives.
const VOLATILE_FIELDS: [&str; 22] = [
    "uid",
    "resourceVersion",
    "generation",
    "observedGeneration",
    "creationTimestamp",
    "managedFields",
    "lastTransitionTime",
    "lastScaleTime",
    // It has the UID of a request.
    "trainyard.dev/scale-request",
    // Only pods have it that were created before the first status.
    "trainyard.dev/spec",
    "startTime",
    "completionTime",
    "startedAt",
    "finishedAt",
    "time",
    "seconds",
    // How many pods there were when one of them ended.
    "consequences",
    "notBefore",
    "podIP",
    "podIPs",
    "clusterIP",
    "clusterIPs",
];

/// Pods, Services and jobs of a namespace by kind and name, without identities and times and with
/// the namespace's name replaced, so that two runs of a scenario can be compared.
pub async fn snapshot(client: &Client, namespace: &str) -> Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    for (kind, group) in KINDS {
        let path = format!("{group}/namespaces/{namespace}/{kind}");
        let list: Value = client
            .request(Request::new(path).list(&ListParams::default())?)
            .await?;
        for item in list["items"].as_array().into_iter().flatten() {
            let name = item["metadata"]["name"].as_str().unwrap_or_default();
            let mut value = item.clone();
            normalise(&mut value, namespace);
            all.insert(format!("{kind}/{name}"), value);
        }
    }
    Ok(all)
}

fn normalise(value: &mut Value, namespace: &str) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !VOLATILE_FIELDS.contains(&name.as_str()));
            // The volume with the service account's token has a random name.
            fields.remove("volumes");
            fields.remove("volumeMounts");
            fields.values_mut().for_each(|value| normalise(value, namespace));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| normalise(value, namespace)),
        Value::String(text) if text.contains(namespace) => *text = text.replace(namespace, "NAMESPACE"),
        _ => {}
    }
}

/// What differs, one line for each object.
pub(super) fn differences(
    expected: &BTreeMap<String, Value>,
    found: &BTreeMap<String, Value>,
) -> Vec<String> {
    let missing = expected.keys().filter(|name| !found.contains_key(*name));
    let mut lines: Vec<String> = missing.map(|name| format!("{name} is missing")).collect();
    for (name, value) in found {
        match expected.get(name) {
            None => lines.push(format!("{name} should not be there")),
            Some(other) => compare(name, other, value, &mut lines),
        }
    }
    lines
}

fn compare(path: &str, expected: &Value, found: &Value, lines: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(a), Value::Object(b)) => {
            for name in a.keys().chain(b.keys().filter(|name| !a.contains_key(*name))) {
                let none = &Value::Null;
                let (a, b) = (a.get(name).unwrap_or(none), b.get(name).unwrap_or(none));
                compare(&format!("{path}.{name}"), a, b, lines);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{path}[{index}]"), a, b, lines);
            }
        }
        _ if expected != found => lines.push(format!("{path}: expected {expected}, found {found}")),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_differs_from_run_to_run_is_left_out() {
        let mut value = json!({
            "metadata": {"uid": "1", "name": "a", "ownerReferences": [{"uid": "2", "name": "j"}]},
            "spec": {"volumes": [1], "containers": [{"env": [{"value": "a.j.ns-1.svc"}]}]},
            "status": {"startTime": "x", "conditions": [{"type": "Ready", "lastTransitionTime": "x"}]},
        });
        normalise(&mut value, "ns-1");
        let expected = json!({
            "metadata": {"name": "a", "ownerReferences": [{"name": "j"}]},
            "spec": {"containers": [{"env": [{"value": "a.j.NAMESPACE.svc"}]}]},
            "status": {"conditions": [{"type": "Ready"}]},
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn differences_have_their_paths() {
        let a = BTreeMap::from([
            ("pods/a".to_owned(), json!({"x": [1, 2]})),
            ("pods/b".to_owned(), json!(1)),
        ]);
        let b = BTreeMap::from([
            ("pods/a".to_owned(), json!({"x": [1, 3]})),
            ("pods/c".to_owned(), json!(1)),
        ]);
        assert_eq!(
            differences(&a, &b),
            [
                "pods/b is missing",
                "pods/a.x[1]: expected 2, found 3",
                "pods/c should not be there"
            ]
        );
        assert!(differences(&a, &a).is_empty());
    }
}
