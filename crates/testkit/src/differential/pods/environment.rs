//! What containers find in their environment.

use serde_json::{Value, json};

use super::{REPORT, SmallPod, Until, main, pod, pod_with, with};

const REFUSED: Until = Until::Waits("CreateContainerConfigError");

/// A pod that reports what a shell expands a text to.
fn says(name: &'static str, text: &str, env: &Value) -> SmallPod {
    takes(name, text, &json!([]), env)
}

/// The same, with variables from whole objects.
fn takes(name: &'static str, text: &str, from: &Value, env: &Value) -> SmallPod {
    let more = json!({"envFrom": from, "env": env});
    // Without globbing: texts have brackets.
    pod(name, with(main(&format!("set -f; echo {text} {REPORT}")), &more))
}

fn config(name: &str, map: &str, key: &str, optional: bool) -> Value {
    json!({"name": name, "valueFrom": {"configMapKeyRef": {"name": map, "key": key, "optional": optional}}})
}

fn secret(name: &str, secret: &str, key: &str) -> Value {
    json!({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
}

pub(super) fn pods() -> Vec<SmallPod> {
    let mut pods = own();
    pods.extend(from_objects());
    pods.extend(from_whole_objects());
    pods.extend(of_services());
    pods
}

/// Variables that say something of the pod itself.
fn own() -> Vec<SmallPod> {
    let field =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let resource = |name: &str, resource: &str, divisor: &str| json!({"name": name, "valueFrom": {"resourceFieldRef": {"resource": resource, "divisor": divisor}}});
    let limits = json!({"limits": {"cpu": "1500m", "memory": "64Mi"}, "requests": {"cpu": "10m"}});
    let resources = json!([
        resource("C", "limits.cpu", "1"),
        resource("M", "limits.memory", "1Mi"),
        resource("R", "requests.cpu", "1m"),
        resource("D", "requests.memory", "1"),
    ]);
    vec![
        says(
            "env-expansion",
            "$B $C $D $E",
            &json!([
                {"name": "A", "value": "x"}, {"name": "B", "value": "$(A)-$(A)"}, {"name": "C", "value": "$$(A)"},
                {"name": "D", "value": "$(ABSENT)"}, {"name": "E", "value": "$(LATER)"}, {"name": "LATER", "value": "l"},
            ]),
        ),
        says(
            "env-fields",
            "$N $S $L $H",
            &json!([
                field("N", "metadata.name"),
                field("S", "spec.serviceAccountName"),
                field("L", "metadata.labels['tier']"),
                field("H", "metadata.annotations['absent']"),
            ]),
        ),
        says(
            "env-addresses",
            "$(test $IP = $(hostname -i) && echo own) ${HOST:+host} ${NODE:+node} ${ID:+id}",
            &json!([
                field("IP", "status.podIP"),
                field("HOST", "status.hostIP"),
                field("NODE", "spec.nodeName"),
                field("ID", "metadata.uid"),
            ]),
        ),
        pod(
            "env-resources",
            with(
                main(&format!("echo $C $M $R $D {REPORT}")),
                &json!({"env": resources, "resources": limits}),
            ),
        ),
        pod(
            "expansion-in-arguments",
            with(
                main(""),
                &json!({
                    "command": ["sh", "-c", format!("echo $0 $1 $(A) {REPORT}"), "$(A)"], "args": ["$$(A)"],
                    "env": [{"name": "A", "value": "x"}],
                }),
            ),
        ),
    ]
}

/// Variables with values from ConfigMaps and Secrets.
fn from_objects() -> Vec<SmallPod> {
    vec![
        says(
            "env-from-objects",
            "$ONE $KEY",
            &json!([
                config("ONE", "words", "one", false),
                secret("KEY", "secrets", "key")
            ]),
        ),
        says(
            "env-optional",
            "[$X] [${Y-none}]",
            &json!([
                config("X", "absent", "x", true),
                config("Y", "words", "absent", true)
            ]),
        ),
        says("env-absent", "", &json!([config("X", "absent", "x", false)])).until(REFUSED),
        says(
            "env-key-absent",
            "",
            &json!([config("X", "words", "three", false)]),
        )
        .until(REFUSED),
        says("env-secret-absent", "", &json!([secret("X", "absent", "x")])).until(REFUSED),
        says("env-secret-key-absent", "", &json!([secret("X", "secrets", "x")])).until(REFUSED),
    ]
}

/// All that a ConfigMap or Secret has, as variables.
fn from_whole_objects() -> Vec<SmallPod> {
    vec![
        takes(
            "env-from",
            "$W_two $key",
            &json!([{"prefix": "W_", "configMapRef": {"name": "words"}}, {"secretRef": {"name": "secrets"}}]),
            &json!([]),
        ),
        takes(
            "env-from-is-overridden",
            "$one $two",
            &json!([{"configMapRef": {"name": "words"}}]),
            &json!([{"name": "two", "value": "$(one)+1"}]),
        ),
        takes(
            "env-from-optional",
            "[$one]",
            &json!([{"configMapRef": {"name": "absent", "optional": true}}]),
            &json!([]),
        ),
        takes(
            "env-from-absent",
            "",
            &json!([{"secretRef": {"name": "absent"}}]),
            &json!([]),
        )
        .until(REFUSED),
    ]
}

/// Variables that say where Services are.
fn of_services() -> Vec<SmallPod> {
    let told =
        format!(r#"env | grep -E "^(WEB|HEADLESS)_" | sed "s/$WEB_TOO_SERVICE_HOST/HOST/" | sort {REPORT}"#);
    vec![
        pod("env-services", main(&told)),
        pod_with(
            "env-no-services",
            main(&told),
            &json!({"enableServiceLinks": false}),
        ),
        says(
            "env-services-are-overridden",
            "$WEB_TOO_SERVICE_PORT_HTTP $A $B",
            &json!([
                {"name": "A", "value": "$(WEB_TOO_SERVICE_PORT_HTTP)"},
                {"name": "WEB_TOO_SERVICE_PORT_HTTP", "value": "own"},
                {"name": "B", "value": "$(WEB_TOO_SERVICE_PORT_HTTP)"},
            ]),
        ),
    ]
}
