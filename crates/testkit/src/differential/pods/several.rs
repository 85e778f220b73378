//! Pods of several containers.

use serde_json::{Value, json};

use super::{LONG_RUNNING, REPORT, STUBBORN, SmallPod, Until, main, named, pod_with, with};

fn with_init(name: &'static str, container: Value, init: &Value) -> SmallPod {
    pod_with(name, container, &json!({"initContainers": init}))
}

fn side(script: &str) -> Value {
    with(named("side", script), &json!({"restartPolicy": "Always"}))
}

pub(super) fn pods() -> Vec<SmallPod> {
    let mut pods = sidecars();
    let shared = |name: &str, script: &str| {
        with(
            named(name, script),
            &json!({"volumeMounts": [{"name": "s", "mountPath": "/s"}]}),
        )
    };
    let waits = Until::Waits("CrashLoopBackOff");
    // In brackets, so that grep does not find its own command line.
    let finds_the_other = format!(
        "until p=$(grep -ls '[m]ark-of-the-other' /proc/[0-9]*/cmdline | head -n 1) && test -n \"$p\"; do sleep 0.1; done; \
         cat /proc/1/comm {REPORT}; test $$ -ne 1 && echo not first >> /dev/termination-log; \
         kill -TERM $(echo $p | cut -d / -f 3); \
         while grep -qs '[m]ark-of-its-child' /proc/[0-9]*/cmdline; do sleep 0.1; done"
    );
    pods.push(pod_with(
        "shared-processes",
        main(""),
        &json!({"shareProcessNamespace": true, "containers": [
            main(&finds_the_other), named("other", ": mark-of-the-other; sh -c ': mark-of-its-child; sleep 1000; true'; true"),
        ]}),
    ));
    pods.extend([
        pod_with(
            "init-in-order",
            shared("main", &format!("cat /s/f {REPORT}")),
            &json!({
                "volumes": [{"name": "s", "emptyDir": {}}],
                "initContainers": [shared("a", "echo a >> /s/f"), shared("b", "echo b >> /s/f")],
            }),
        ),
        with_init("init-fails", main("true"), &json!([named("a", "exit 7"), named("b", "true")])),
        with_init(
            "init-has-no-such-command",
            main("true"),
            &json!([with(named("a", ""), &json!({"command": ["no-such-command"]}))]),
        ),
        pod_with(
            "init-keeps-failing",
            main("true"),
            &json!({"restartPolicy": "Always", "initContainers": [named("a", "exit 7")]}),
        )
        .until(waits),
        pod_with(
            "one-fails",
            main("true"),
            &json!({"containers": [main("true"), named("other", "exit 5")]}),
        ),
        pod_with(
            "one-fails-early",
            main("true"),
            &json!({"containers": [main("sleep 8"), named("other", "exit 5")]}),
        ),
        pod_with(
            "two-messages",
            main(""),
            &json!({"containers": [main(&format!("echo one {REPORT}")), named("other", &format!("echo two {REPORT}"))]}),
        ),
        pod_with(
            "shared-network",
            main(""),
            &json!({"containers": [
                // nc must not close the connection before the answer has come.
                main(&format!("until sleep 1 | nc 127.0.0.1 7777 {REPORT}; do sleep 0.2; done")),
                named("server", "echo found | nc -l -p 7777"),
            ]}),
        ),
    ]);
    pods
}

fn sidecars() -> Vec<SmallPod> {
    let asked = |script: &str| {
        json!({"startupProbe": {
            "exec": {"command": ["sh", "-c", script]}, "periodSeconds": 1, "failureThreshold": 100, "timeoutSeconds": 20,
        }})
    };
    let share = json!({"volumeMounts": [{"name": "s", "mountPath": "/s"}]});
    vec![
        with_init(
            "sidecar-ends-with-its-pod",
            main("sleep 8"),
            &json!([side(LONG_RUNNING)]),
        )
        .lasting(),
        with_init("sidecar-is-killed", main("sleep 1"), &json!([side(STUBBORN)])),
        with_init(
            "sidecar-of-a-failure",
            main("exit 3"),
            &json!([side("trap 'exit 4' TERM; sleep 1000 & wait")]),
        ),
        pod_with(
            "sidecar-is-waited-for",
            with(main(&format!("cat /s/up {REPORT}")), &share),
            &json!({
                "volumes": [{"name": "s", "emptyDir": {}}],
                "initContainers": [with(
                    with(side("trap 'exit 0' TERM; sleep 2; echo up > /s/up; sleep 1000 & wait"), &share),
                    &asked("test -e /s/up"),
                )],
            }),
        ),
        with_init(
            "sidecar-before-a-failing-init",
            main("true"),
            &json!([side(LONG_RUNNING), named("then", "exit 2")]),
        ),
        with_init(
            "sidecar-keeps-failing",
            main(LONG_RUNNING),
            &json!([side("exit 1")]),
        )
        // A crash may be told before the main container, which does not wait for it, is there.
        .until(Until::WaitsBeside("CrashLoopBackOff")),
    ]
}
