//! Small pods, each about one thing that a kubelet does. What they find, they write into their termination message, so
//! that it can be compared.

use serde_json::{Value, json};

/// When a pod has come to its end, for this test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Its phase is Succeeded or Failed.
    Ended,
    /// It is ready.
    Ready,
    /// It runs and is not ready.
    Running,
    /// A container waits, with this reason.
    Waits(&'static str),
}

/// One small pod.
#[derive(Clone, Debug)]
pub struct Small {
    /// Its name.
    pub name: &'static str,
    /// When it is compared.
    pub until: Until,
    /// Its spec.
    pub spec: Value,
}

/// Says what a script prints.
const TELL: &str = "> /dev/termination-log";

fn main(script: &str) -> Value {
    json!({"name": "main", "image": crate::images::BUSYBOX, "command": ["sh", "-c", script]})
}

fn with(mut container: Value, more: &Value) -> Value {
    json_patch::merge(&mut container, more);
    container
}

fn spec(container: Value, more: &Value) -> Value {
    let containers = vec![container];
    let mut spec = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": 2,
        "containers": containers,
    });
    json_patch::merge(&mut spec, more);
    spec
}

fn pod(name: &'static str, spec: Value) -> Small {
    Small {
        name,
        until: Until::Ended,
        spec,
    }
}

fn until(until: Until, name: &'static str, spec: Value) -> Small {
    Small { name, until, spec }
}

/// The objects that the pods refer to.
pub fn surroundings() -> Vec<Value> {
    vec![
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "words"}, "data": {"one": "1", "two": "zwei"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secrets"}, "stringData": {"key": "hush"}}),
    ]
}

/// All of them.
pub fn small_pods() -> Vec<Small> {
    let mut pods = ends();
    pods.extend(environment());
    pods.extend(identity());
    pods.extend(volumes());
    pods.extend(several());
    pods.extend(watched());
    pods
}

fn ends() -> Vec<Small> {
    let none = json!({});
    let plain = |script: &str| spec(main(script), &none);
    vec![
        pod("exit-0", plain("exit 0")),
        pod("exit-3", plain("exit 3")),
        pod("killed", plain("kill -9 $$")),
        pod("terminated", plain("kill -TERM $$; sleep 5; exit 9")),
        pod("message", plain(&format!("echo hello {TELL}; exit 1"))),
        pod(
            "message-elsewhere",
            spec(
                with(
                    main("echo there > /tmp/said"),
                    &json!({"terminationMessagePath": "/tmp/said"}),
                ),
                &none,
            ),
        ),
        pod(
            "message-from-log",
            spec(
                with(
                    main("echo last words; exit 4"),
                    &json!({"terminationMessagePolicy": "FallbackToLogsOnError"}),
                ),
                &none,
            ),
        ),
        pod(
            "no-message-from-log-of-success",
            spec(
                with(
                    main("echo last words"),
                    &json!({"terminationMessagePolicy": "FallbackToLogsOnError"}),
                ),
                &none,
            ),
        ),
        pod(
            "no-such-command",
            spec(with(main(""), &json!({"command": ["no-such-command"]})), &none),
        ),
        pod(
            "not-executable",
            spec(with(main(""), &json!({"command": ["/etc/passwd"]})), &none),
        ),
        pod(
            "deadline",
            spec(main("sleep 600"), &json!({"activeDeadlineSeconds": 1})),
        ),
        pod(
            "arguments",
            spec(
                with(
                    main(""),
                    &json!({"command": ["sh", "-c", format!("echo $0 $1 {TELL}")], "args": ["a b", "c"]}),
                ),
                &none,
            ),
        ),
    ]
}

fn environment() -> Vec<Small> {
    let env = |script: &str, env: Value, more: &Value| {
        let container = with(main(&format!("{script} {TELL}")), &json!({"env": env}));
        spec(with(container, more), &json!({}))
    };
    let none = json!({});
    vec![
        pod(
            "env-expansion",
            env(
                "echo $B $C $D",
                json!([{"name": "A", "value": "x"}, {"name": "B", "value": "$(A)-$(A)"}, {"name": "C", "value": "$$(A)"}, {"name": "D", "value": "$(ABSENT)"}]),
                &none,
            ),
        ),
        pod(
            "env-fields",
            env(
                "echo $N $S $L",
                json!([{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "S", "valueFrom": {"fieldRef": {"fieldPath": "spec.serviceAccountName"}}},
                    {"name": "L", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['tier']"}}}]),
                &none,
            ),
        ),
        pod(
            "env-resources",
            env(
                "echo $C $M $R",
                json!([{"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                    {"name": "M", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
                    {"name": "R", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1m"}}}]),
                &json!({"resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}, "requests": {"cpu": "10m"}}}),
            ),
        ),
        pod(
            "env-from-objects",
            env(
                "echo $ONE $KEY",
                json!([{"name": "ONE", "valueFrom": {"configMapKeyRef": {"name": "words", "key": "one"}}},
                    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "secrets", "key": "key"}}}]),
                &none,
            ),
        ),
        pod(
            "env-from",
            env(
                "echo $W_two $key",
                json!([]),
                &json!({"envFrom": [{"prefix": "W_", "configMapRef": {"name": "words"}}, {"secretRef": {"name": "secrets"}}]}),
            ),
        ),
        pod(
            "env-optional",
            env(
                "echo [$X]",
                json!([{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "absent", "key": "x", "optional": true}}}]),
                &none,
            ),
        ),
        until(
            Until::Waits("CreateContainerConfigError"),
            "env-absent",
            env(
                "true",
                json!([{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "absent", "key": "x"}}}]),
                &none,
            ),
        ),
    ]
}

fn identity() -> Vec<Small> {
    let none = json!({});
    vec![
        pod("host-name", spec(main(&format!("hostname {TELL}")), &none)),
        pod(
            "own-host-name",
            spec(
                main(&format!("hostname {TELL}")),
                &json!({"hostname": "chosen", "subdomain": "sub"}),
            ),
        ),
        pod(
            "host-aliases",
            spec(
                main(&format!("grep -c 10.1.2.3 /etc/hosts {TELL}")),
                &json!({"hostAliases": [{"ip": "10.1.2.3", "hostnames": ["far.example"]}]}),
            ),
        ),
        pod(
            "working-directory",
            spec(
                with(main(&format!("pwd {TELL}")), &json!({"workingDir": "/tmp"})),
                &none,
            ),
        ),
        pod(
            "user",
            spec(
                main(&format!("echo $(id -u) $(id -g) {TELL}")),
                &json!({"securityContext": {"runAsUser": 1234, "runAsGroup": 4321}}),
            ),
        ),
        until(
            Until::Waits("CreateContainerConfigError"),
            "not-root",
            spec(
                main("true"),
                &json!({"securityContext": {"runAsNonRoot": true, "runAsUser": 0}}),
            ),
        ),
        pod("first-process", spec(main(&format!("echo $$ {TELL}")), &none)),
    ]
}

fn volumes() -> Vec<Small> {
    let mounted = |script: &str, volume: Value, mount: &Value| {
        let mount = with(json!({"name": "v", "mountPath": "/v"}), mount);
        let container = with(main(script), &json!({"volumeMounts": [mount]}));
        spec(
            container,
            &json!({"volumes": [with(json!({"name": "v"}), &volume)]}),
        )
    };
    let none = json!({});
    vec![
        pod(
            "empty-dir",
            mounted(
                &format!("echo x > /v/f; cat /v/f {TELL}"),
                json!({"emptyDir": {}}),
                &none,
            ),
        ),
        pod(
            "config-map",
            mounted(
                &format!("cat /v/one /v/two {TELL}"),
                json!({"configMap": {"name": "words"}}),
                &none,
            ),
        ),
        pod(
            "config-map-items",
            mounted(
                &format!("ls /v {TELL}; stat -L -c %a /v/deep/er >> /dev/termination-log"),
                json!({"configMap": {"name": "words", "items": [{"key": "one", "path": "deep/er", "mode": 256}]}}),
                &none,
            ),
        ),
        pod(
            "secret",
            mounted(
                &format!("cat /v/key {TELL}; stat -L -c %a /v/key >> /dev/termination-log"),
                json!({"secret": {"secretName": "secrets", "defaultMode": 292}}),
                &none,
            ),
        ),
        pod(
            "read-only-volume",
            mounted(
                "echo x > /v/f",
                json!({"emptyDir": {}}),
                &json!({"readOnly": true}),
            ),
        ),
        pod(
            "sub-path",
            mounted(
                &format!("cat /v {TELL}"),
                json!({"configMap": {"name": "words"}}),
                &json!({"subPath": "two"}),
            ),
        ),
        pod(
            "downward",
            mounted(
                &format!("cat /v/labels {TELL}"),
                json!({"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}),
                &none,
            ),
        ),
        pod(
            "projected",
            mounted(
                &format!("cat /v/one /v/key {TELL}"),
                json!({"projected": {"sources": [{"configMap": {"name": "words"}}, {"secret": {"name": "secrets"}}]}}),
                &none,
            ),
        ),
        pod(
            "token",
            mounted(
                &format!("cut -d. -f1 /v/token | wc -l {TELL}"),
                json!({"projected": {"sources": [{"serviceAccountToken": {"path": "token", "audience": "trainyard"}}]}}),
                &none,
            ),
        ),
        pod(
            "read-only-root",
            spec(
                with(
                    main("echo x > /f"),
                    &json!({"securityContext": {"readOnlyRootFilesystem": true}}),
                ),
                &none,
            ),
        ),
    ]
}

fn several() -> Vec<Small> {
    let share = json!([{"name": "s", "mountPath": "/s"}]);
    let shared = |name: &str, script: &str| with(main(script), &json!({"name": name, "volumeMounts": share}));
    let volumes = json!([{"name": "s", "emptyDir": {}}]);
    vec![
        pod(
            "init-in-order",
            spec(
                shared("main", &format!("cat /s/f {TELL}")),
                &json!({"volumes": volumes, "initContainers": [shared("a", "echo a >> /s/f"), shared("b", "echo b >> /s/f")]}),
            ),
        ),
        pod(
            "init-fails",
            spec(
                main("true"),
                &json!({"initContainers": [with(main("exit 7"), &json!({"name": "a"}))]}),
            ),
        ),
        pod(
            "one-fails",
            spec(
                main("true"),
                &json!({"containers": [main("true"), with(main("exit 5"), &json!({"name": "other"}))]}),
            ),
        ),
        pod(
            "sidecar-ends-with-its-pod",
            spec(
                main("sleep 1"),
                &json!({"initContainers": [with(main("trap 'exit 0' TERM; while true; do sleep 0.1; done"),
                    &json!({"name": "side", "restartPolicy": "Always"}))]}),
            ),
        ),
        pod(
            "shared-network",
            spec(
                main(""),
                &json!({"containers": [
                    main(&format!("until nc 127.0.0.1 7777 < /dev/null {TELL}; do sleep 0.2; done")),
                    with(main("echo found | nc -l -p 7777"), &json!({"name": "server"}))]}),
            ),
        ),
    ]
}

fn watched() -> Vec<Small> {
    let none = json!({});
    let probe = |kind: &str, script: &str, failures: i32| json!({kind: {"exec": {"command": ["sh", "-c", script]}, "periodSeconds": 1, "failureThreshold": failures}});
    let long = "trap 'exit 0' TERM; while true; do sleep 0.1; done";
    vec![
        until(Until::Ready, "ready-without-probe", spec(main(long), &none)),
        until(
            Until::Ready,
            "ready-by-probe",
            spec(with(main(long), &probe("readinessProbe", "true", 1)), &none),
        ),
        until(
            Until::Running,
            "never-ready",
            spec(with(main(long), &probe("readinessProbe", "false", 1)), &none),
        ),
        pod(
            "not-alive",
            spec(
                with(main("sleep 600"), &probe("livenessProbe", "false", 1)),
                &none,
            ),
        ),
        pod(
            "not-started",
            spec(with(main("sleep 600"), &probe("startupProbe", "false", 2)), &none),
        ),
        until(
            Until::Ready,
            "after-start",
            spec(
                with(
                    main(long),
                    &json!({"lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", "true"]}}}}),
                ),
                &none,
            ),
        ),
        until(
            Until::Waits("CrashLoopBackOff"),
            "crash-loop",
            spec(main("exit 1"), &json!({"restartPolicy": "Always"})),
        ),
        until(
            Until::Waits("CrashLoopBackOff"),
            "crash-loop-on-failure",
            spec(main("exit 6"), &json!({"restartPolicy": "OnFailure"})),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_at_least_forty_and_each_has_a_name_of_its_own() {
        let pods = small_pods();
        let names: std::collections::BTreeSet<&str> = pods.iter().map(|pod| pod.name).collect();
        assert!(pods.len() >= 40, "{}", pods.len());
        assert_eq!(names.len(), pods.len());
    }
}
