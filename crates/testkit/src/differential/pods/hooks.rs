//! Hooks of a container's life, and deletion.

use serde_json::{Value, json};

use super::{LONG_RUNNING, REPORT, STUBBORN, SmallPod, Until, main, named, pod, pod_with, with};

fn hook(name: &str, script: &str) -> Value {
    json!({"lifecycle": {name: {"exec": {"command": ["sh", "-c", script]}}}})
}

/// Makes a container with [`LONG_RUNNING`] ready when its trap is set. Before that it ignores
/// SIGTERM, as the first process of its container.
fn ready_when_trapped(container: Value) -> Value {
    let probe = json!({"exec": {"command": ["test", "-e", "/tmp/trapped"]}, "periodSeconds": 1});
    with(container, &json!({"readinessProbe": probe}))
}

pub(super) fn pods() -> Vec<SmallPod> {
    let deleted = Until::Deleted(&Until::Ready);
    let after = |script: &str, hooked: &str| with(main(script), &hook("postStart", hooked));
    let before = |script: &str, hooked: &str| with(main(script), &hook("preStop", hooked));
    let long = || ready_when_trapped(main(LONG_RUNNING));
    let long_before = |hooked: &str| ready_when_trapped(before(LONG_RUNNING, hooked));
    // A runtime may take seconds to start a hook where many pods share a processor.
    let patient = json!({"terminationGracePeriodSeconds": 30});
    vec![
        pod("after-start", after(LONG_RUNNING, "true")).until(Until::Ready),
        pod(
            "after-start-beside-it",
            after(
                &format!("until test -e /tmp/f; do sleep 0.2; done; echo seen {REPORT}"),
                "touch /tmp/f",
            ),
        ),
        pod("after-start-fails", after(STUBBORN, "exit 1")),
        pod("after-start-has-no-command", after_without_command()),
        pod_with(
            "after-start-keeps-failing",
            after(STUBBORN, "exit 1"),
            &json!({"restartPolicy": "Always"}),
        )
        .until(Until::Waits("CrashLoopBackOff")),
        pod_with(
            "before-stop",
            long_before(&format!("echo bye {REPORT}")),
            &patient,
        )
        .until(deleted),
        pod_with("before-stop-fails", long_before("exit 1"), &patient).until(deleted),
        pod("before-stop-is-too-slow", long_before("sleep 100")).until(deleted),
        pod(
            "before-stop-not-at-its-own-end",
            before("sleep 1", &format!("echo bye {REPORT}")),
        ),
        pod_with(
            "before-stop-sleeps",
            with(
                long(),
                &json!({"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}),
            ),
            &patient,
        )
        .until(deleted),
        pod("deleted", long()).until(deleted),
        pod(
            "deleted-fails",
            ready_when_trapped(main(&LONG_RUNNING.replace("exit 0", "exit 3"))),
        )
        .until(deleted),
        pod("deleted-by-force", main(STUBBORN)).until(deleted),
        pod_with("deleted-for-ever", long(), &json!({"restartPolicy": "Always"})).until(deleted),
        pod_with(
            "deleted-while-restarting",
            main("exit 1"),
            &json!({"restartPolicy": "Always"}),
        )
        .until(Until::Deleted(&Until::Waits("CrashLoopBackOff"))),
        pod_with(
            "deleted-with-sidecar",
            long(),
            &json!({"initContainers": [with(named("side", LONG_RUNNING), &json!({"restartPolicy": "Always"}))]}),
        )
        .until(deleted),
        pod(
            "deleted-before-it-ran",
            with(
                main("true"),
                &json!({"envFrom": [{"configMapRef": {"name": "absent"}}]}),
            ),
        )
        .until(Until::Deleted(&Until::Waits("CreateContainerConfigError"))),
    ]
}

fn after_without_command() -> Value {
    with(
        main(STUBBORN),
        &json!({"lifecycle": {"postStart": {"exec": {"command": ["no-such-command"]}}}}),
    )
}
