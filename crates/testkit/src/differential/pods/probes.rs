//! Probes.

use serde_json::{Value, json};

use super::{LONG_RUNNING, REPORT, STUBBORN, SmallPod, Until, main, pod, pod_with, with};

/// Serves `/tmp` by HTTP, at the port `web`.
const WEB: &str = "touch /tmp/there; trap 'exit 0' TERM; httpd -f -p 7070 -h /tmp & wait";

/// A probe with a short period, and a timeout that is long enough for a busy machine.
fn probe(kind: &str, action: &Value, failures: i32) -> Value {
    let often = json!({"periodSeconds": 1, "timeoutSeconds": 20, "failureThreshold": failures});
    json!({kind: with(often, action)})
}

fn exec(script: &str) -> Value {
    json!({"exec": {"command": ["sh", "-c", script]}})
}

fn http(path: &str) -> Value {
    json!({"httpGet": {"path": path, "port": "web"}})
}

pub(super) fn pods() -> Vec<SmallPod> {
    let mut pods = ready();
    pods.extend(ended());
    pods
}

fn web(more: &Value) -> Value {
    let ports = json!({"ports": [{"name": "web", "containerPort": 7070}]});
    with(with(main(WEB), &ports), more)
}

/// Pods that become ready, or never do.
fn ready() -> Vec<SmallPod> {
    let many = 100;
    let tcp = |port: i32| json!({"tcpSocket": {"port": port}});
    let asked = |kind: &str, script: &str| with(main(LONG_RUNNING), &probe(kind, &exec(script), many));
    let slow = "sleep 3; touch /tmp/up; trap 'exit 0' TERM; sleep 1000 & wait";
    vec![
        pod("ready-without-probe", main(LONG_RUNNING)).until(Until::Ready),
        pod("ready-by-command", asked("readinessProbe", "true")).until(Until::Ready),
        pod(
            "ready-by-connection",
            web(&probe("readinessProbe", &tcp(7070), many)),
        )
        .until(Until::Ready),
        pod(
            "ready-by-page",
            web(&probe("readinessProbe", &http("/there"), many)),
        )
        .until(Until::Ready),
        pod("alive", asked("livenessProbe", "true")).until(Until::Ready),
        pod(
            "alive-by-connection",
            web(&probe("startupProbe", &tcp(7070), many)),
        )
        .until(Until::Ready),
        pod(
            "started-by-page",
            web(&probe("startupProbe", &http("there"), many)),
        )
        .until(Until::Ready),
        pod(
            "started-and-ready",
            with(
                with(main(slow), &probe("startupProbe", &exec("test -e /tmp/up"), many)),
                &probe("readinessProbe", &exec("test -e /tmp/up"), 1),
            ),
        )
        .until(Until::Ready),
        pod("never-ready", asked("readinessProbe", "false")).until(Until::Stays("Running")),
        pod("no-page", web(&probe("readinessProbe", &http("/absent"), many))).until(Until::Stays("Running")),
        pod("no-connection", web(&probe("readinessProbe", &tcp(7071), many))).until(Until::Stays("Running")),
        pod("not-started-yet", web(&probe("startupProbe", &tcp(7071), 1000))).until(Until::Stays("Running")),
        pod(
            "not-ready-any-more",
            with(
                main("touch /tmp/up; sleep 8; rm /tmp/up; sleep 8"),
                &probe("readinessProbe", &exec("test -e /tmp/up"), 1),
            ),
        )
        .lasting(),
    ]
}

/// Pods that are ended by their probes.
fn ended() -> Vec<SmallPod> {
    let dies = |script: &str| with(main(script), &probe("livenessProbe", &exec("false"), 1));
    let polite = "trap 'sleep 6; exit 5' TERM; sleep 1000 & wait; wait";
    vec![
        pod("not-alive", dies(STUBBORN)),
        pod("not-alive-politely", dies(LONG_RUNNING)),
        pod(
            "not-alive-with-a-hook",
            with(
                dies(LONG_RUNNING),
                &json!({"lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", format!("echo bye {REPORT}")]}}}}),
            ),
        ),
        pod_with(
            "not-alive-without-much-time",
            with(
                dies(polite),
                &json!({"livenessProbe": {"terminationGracePeriodSeconds": 1}}),
            ),
            &json!({"terminationGracePeriodSeconds": 30}),
        ),
        pod_with(
            "not-alive-again-without-much-time",
            with(
                dies(polite),
                &json!({"livenessProbe": {"terminationGracePeriodSeconds": 1}}),
            ),
            &json!({"terminationGracePeriodSeconds": 30, "restartPolicy": "Always"}),
        )
        .until(Until::Waits("CrashLoopBackOff")),
        pod(
            "page-is-not-alive",
            web(&probe("livenessProbe", &http("/absent"), 2)),
        ),
        pod(
            "not-started",
            with(main(STUBBORN), &probe("startupProbe", &exec("false"), 2)),
        ),
        pod_with(
            "not-alive-again",
            dies(LONG_RUNNING),
            &json!({"restartPolicy": "Always"}),
        )
        .until(Until::Waits("CrashLoopBackOff")),
    ]
}
