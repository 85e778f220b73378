//! How containers end, and what is said of it.

use serde_json::json;

use super::{REPORT, STUBBORN, SmallPod, main, named, pod, pod_with, with};

pub(super) fn pods() -> Vec<SmallPod> {
    let from_log = json!({"terminationMessagePolicy": "FallbackToLogsOnError"});
    vec![
        pod("exit-0", main("exit 0")),
        pod("exit-3", main("exit 3")),
        pod("exit-255", main("exit 255")),
        pod("killed", main("kill -9 $$")),
        pod("aborted", main("sh -c 'kill -ABRT $$'; exit $?")),
        pod("terminated", main("kill -TERM $$; sleep 1; exit 9")),
        pod("message", main(&format!("echo hello {REPORT}; exit 1"))),
        pod("message-of-success", main(&format!("echo fine {REPORT}"))),
        pod(
            "message-elsewhere",
            with(
                main("echo there > /tmp/said"),
                &json!({"terminationMessagePath": "/tmp/said"}),
            ),
        ),
        pod("message-too-long", main(&format!("seq 1 3000 {REPORT}; exit 1"))),
        pod(
            "message-from-log",
            with(main("echo last words; exit 4"), &from_log),
        ),
        pod(
            "message-from-errors",
            with(main("echo wrong >&2; exit 4"), &from_log),
        ),
        pod(
            "message-from-long-log",
            with(main("seq 1 3000; exit 4"), &from_log),
        ),
        pod(
            "message-before-log",
            with(main(&format!("echo log; echo file {REPORT}; exit 4")), &from_log),
        ),
        pod(
            "no-message-from-log-of-success",
            with(main("echo last words"), &from_log),
        ),
        pod(
            "no-such-command",
            with(main(""), &json!({"command": ["no-such-command"]})),
        ),
        pod(
            "no-such-path",
            with(main(""), &json!({"command": ["/no/such/command"]})),
        ),
        pod(
            "not-executable",
            with(main(""), &json!({"command": ["/etc/passwd"]})),
        ),
        pod(
            "arguments",
            with(
                main(""),
                &json!({"command": ["sh", "-c", format!("echo $0 $1 {REPORT}")], "args": ["a b", "c"]}),
            ),
        ),
        pod("no-input", main(&format!("wc -c {REPORT}"))),
        pod_with("deadline", main(STUBBORN), &json!({"activeDeadlineSeconds": 20})).lasting(),
        pod_with(
            "deadline-in-init",
            main("true"),
            &json!({"activeDeadlineSeconds": 20, "initContainers": [named("first", STUBBORN)]}),
        )
        .lasting(),
    ]
}
