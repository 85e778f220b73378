//! Volumes.

use serde_json::{Value, json};

use super::{REPORT, SmallPod, Until, main, pod, pod_with, with};

const MORE: &str = ">> /dev/termination-log";

/// A pod with one volume at `/v`.
fn mounted(name: &'static str, script: &str, volume: &Value, mount: &Value) -> SmallPod {
    let mount = with(json!({"name": "v", "mountPath": "/v"}), mount);
    let container = with(
        main(script),
        &json!({
            "volumeMounts": [mount], "env": [{"name": "NAME", "value": "sub"}],
            "resources": {"limits": {"memory": "64Mi"}},
        }),
    );
    pod_with(
        name,
        container,
        &json!({"volumes": [with(json!({"name": "v"}), volume)]}),
    )
}

pub(super) fn pods() -> Vec<SmallPod> {
    let mut pods = files();
    pods.extend(automatic());
    pods.extend(places());
    pods.extend(of_a_group());
    pods
}

/// Volumes that hold what the API has.
fn files() -> Vec<SmallPod> {
    let none = json!({});
    let words = |more: &Value| json!({"configMap": with(json!({"name": "words"}), more)});
    let projected = |sources: Value| json!({"projected": {"sources": sources}});
    let waits = Until::Stays("Pending");
    vec![
        mounted(
            "config-map",
            &format!("cat /v/one /v/two {REPORT}"),
            &words(&none),
            &none,
        ),
        mounted(
            "config-map-binary",
            &format!("wc -c < /v/raw {REPORT}"),
            &words(&none),
            &none,
        ),
        mounted(
            "config-map-items",
            &format!("ls /v {REPORT}; stat -L -c %a /v/deep/er {MORE}"),
            &words(&json!({"items": [{"key": "one", "path": "deep/er", "mode": 0o400}]})),
            &none,
        ),
        mounted(
            "config-map-optional",
            &format!("ls /v | wc -l {REPORT}"),
            &json!({"configMap": {"name": "absent", "optional": true}}),
            &none,
        ),
        mounted(
            "config-map-absent",
            "true",
            &json!({"configMap": {"name": "absent"}}),
            &none,
        )
        .until(waits),
        mounted(
            "config-map-key-absent",
            "true",
            &words(&json!({"items": [{"key": "three", "path": "x"}]})),
            &none,
        )
        .until(waits),
        mounted(
            "secret",
            &format!("cat /v/key {REPORT}; stat -L -c %a /v/key {MORE}"),
            &json!({"secret": {"secretName": "secrets", "defaultMode": 0o444}}),
            &none,
        ),
        mounted(
            "secret-absent",
            "true",
            &json!({"secret": {"secretName": "absent"}}),
            &none,
        )
        .until(waits),
        mounted(
            "sub-path",
            &format!("cat /v {REPORT}"),
            &words(&none),
            &json!({"subPath": "two"}),
        ),
        mounted(
            "downward",
            &format!("cat /v/labels /v/name /v/memory {REPORT}"),
            &json!({"downwardAPI": {"items": [
                {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
                {"path": "memory", "resourceFieldRef": {
                    "containerName": "main", "resource": "limits.memory", "divisor": "1Mi"}},
            ]}}),
            &none,
        ),
        mounted(
            "projected",
            &format!("cat /v/one /v/key /v/name {REPORT}"),
            &projected(json!([
                {"configMap": {"name": "words", "items": [{"key": "one", "path": "one"}]}},
                {"secret": {"name": "secrets"}},
                {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            ])),
            &none,
        ),
        mounted(
            "token",
            &format!("tr -cd . < /v/token | wc -c {REPORT}"),
            &projected(json!([{"serviceAccountToken": {"path": "token", "audience": "trainyard"}}])),
            &none,
        ),
        mounted(
            "files-are-read-only",
            &format!("echo x > /v/one || echo refused {REPORT}"),
            &words(&none),
            &none,
        ),
    ]
}

/// The volume that every pod is given, unless it does not want it.
fn automatic() -> Vec<SmallPod> {
    let place = "/var/run/secrets/kubernetes.io/serviceaccount";
    let wanting = |mut pod: SmallPod| {
        json_patch::merge(&mut pod.spec, &json!({"automountServiceAccountToken": null}));
        pod
    };
    vec![
        wanting(pod(
            "service-account",
            main(&format!(
                "cd {place} && ls {REPORT}; stat -L -c %a token ca.crt namespace {MORE}; tr -cd . < token | wc -c {MORE}; \
                 head -n 1 ca.crt {MORE}; test $(wc -c < namespace) -gt 1 && tail -c 1 namespace | tr -d a-z0-9 | wc -c {MORE}; \
                 echo x > token || echo refused {MORE}"
            )),
        )),
        wanting(pod_with(
            "service-account-of-a-user",
            main(&format!("stat -L -c '%a %u %g' {place}/token {REPORT}")),
            &json!({"securityContext": {"runAsUser": 1234, "fsGroup": 2345}}),
        )),
        wanting(mounted(
            "service-account-elsewhere",
            &format!("ls {place} | wc -l {REPORT}"),
            &json!({"emptyDir": {}}),
            &json!({"mountPath": place}),
        )),
        pod(
            "no-service-account",
            main(&format!("test -e {place} || echo none {REPORT}")),
        ),
    ]
}

/// Volumes to write to.
fn places() -> Vec<SmallPod> {
    let none = json!({});
    let empty = json!({"emptyDir": {}});
    let claim = |name: &str| json!({"persistentVolumeClaim": {"claimName": name}});
    // A directory of the machine belongs to root.
    let as_root = |mut pod: SmallPod| {
        json_patch::merge(&mut pod.spec, &json!({"securityContext": {"runAsUser": 0}}));
        pod
    };
    vec![
        mounted(
            "empty-dir",
            &format!("echo x > /v/f; cat /v/f {REPORT}"),
            &empty,
            &none,
        ),
        mounted(
            "empty-dir-of-memory",
            &format!("echo x > /v/f; cat /v/f {REPORT}"),
            &json!({"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}),
            &none,
        ),
        mounted(
            "read-only-volume",
            "echo x > /v/f",
            &empty,
            &json!({"readOnly": true}),
        ),
        mounted(
            "sub-path-expression",
            &format!("echo x > /v/f; cat /v/f {REPORT}"),
            &empty,
            &json!({"subPathExpr": "$(NAME)"}),
        ),
        mounted(
            "host-path",
            &format!("test -e /v/hosts && echo there {REPORT}"),
            &json!({"hostPath": {"path": "/etc", "type": "Directory"}}),
            &json!({"readOnly": true}),
        ),
        as_root(mounted(
            "claim",
            &format!("echo x > /v/f; cat /v/f {REPORT}"),
            &claim("kept"),
            &none,
        )),
        as_root(mounted(
            "claim-read-only",
            "echo x > /v/g",
            &claim("kept"),
            &json!({"readOnly": true}),
        )),
        mounted("claim-absent", "true", &claim("absent"), &none).until(Until::Stays("Pending")),
        pod(
            "read-only-root",
            with(
                main("echo x > /f"),
                &json!({"securityContext": {"readOnlyRootFilesystem": true}}),
            ),
        ),
    ]
}

/// Volumes that belong to a group.
fn of_a_group() -> Vec<SmallPod> {
    let given = |name, script: &str, volume: Value| {
        let mut pod = mounted(name, script, &volume, &json!({}));
        let context = json!({"securityContext": {"runAsUser": 1234, "runAsGroup": 1234, "fsGroup": 2345}});
        json_patch::merge(&mut pod.spec, &context);
        pod
    };
    let files = format!("stat -L -c '%a %g' /v/..data/ /v/* {REPORT}");
    vec![
        given(
            "group-of-empty-dir",
            &format!("mkdir /v/d && touch /v/d/f && stat -c '%a %u %g' /v /v/d /v/d/f {REPORT}"),
            json!({"emptyDir": {}}),
        ),
        given(
            "group-of-config-map",
            &files,
            json!({"configMap": {"name": "words"}}),
        ),
        given(
            "group-of-secret",
            &files,
            json!({"secret": {"secretName": "secrets", "defaultMode": 0o400}}),
        ),
        given(
            "group-of-projected",
            &files,
            json!({"projected": {"sources": [
                {"configMap": {"name": "words", "items": [{"key": "one", "path": "deep/one", "mode": 0o600}]}},
                {"serviceAccountToken": {"path": "token"}},
            ]}}),
        ),
    ]
}
