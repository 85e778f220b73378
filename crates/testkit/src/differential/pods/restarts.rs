//! Containers that are started again.

use serde_json::json;

use super::{LONG_RUNNING, REPORT, SmallPod, Until, main, named, pod_with, with};

pub(super) fn pods() -> Vec<SmallPod> {
    let always = json!({"restartPolicy": "Always"});
    let on_failure = json!({"restartPolicy": "OnFailure"});
    let waits = Until::Waits("CrashLoopBackOff");
    let remembers = |script: &str| {
        with(
            main(script),
            &json!({"volumeMounts": [{"name": "s", "mountPath": "/s"}]}),
        )
    };
    vec![
        pod_with("crash-loop", main(&format!("echo why {REPORT}; exit 1")), &always).until(waits),
        pod_with("crash-loop-of-successes", main("exit 0"), &always).until(waits),
        pod_with("crash-loop-on-failure", main("exit 6"), &on_failure).until(waits),
        pod_with("success-on-failure", main("exit 0"), &on_failure),
        pod_with(
            "second-attempt",
            remembers(&format!(
                "test -e /s/f && echo second {REPORT} && exit 0; touch /s/f; exit 1"
            )),
            &json!({"restartPolicy": "OnFailure", "volumes": [{"name": "s", "emptyDir": {}}]}),
        ),
        pod_with(
            "one-restarts",
            main(LONG_RUNNING),
            &json!({"restartPolicy": "Always", "containers": [main(LONG_RUNNING), named("other", "exit 1")]}),
        )
        .until(waits),
        pod_with(
            "no-such-command-again",
            with(main(""), &json!({"command": ["no-such-command"]})),
            &always,
        )
        .until(waits),
    ]
}
