//! Who containers are, and what they may do.

use serde_json::{Value, json};

use super::{REPORT, SmallPod, Until, main, pod, pod_with, with};

pub(super) fn pods() -> Vec<SmallPod> {
    let secured = |name: &'static str, script: &str, context: Value| {
        pod_with(name, main(script), &json!({"securityContext": context}))
    };
    vec![
        pod("host-name", main(&format!("hostname {REPORT}"))),
        pod_with(
            "own-host-name",
            main(&format!("hostname {REPORT}")),
            &json!({"hostname": "chosen", "subdomain": "sub"}),
        ),
        pod_with(
            "host-aliases",
            main(&format!("grep -c 10.1.2.3 /etc/hosts {REPORT}")),
            &json!({"hostAliases": [{"ip": "10.1.2.3", "hostnames": ["far.example"]}]}),
        ),
        pod(
            "own-name-resolves",
            main(&format!("test \"$(hostname -i)\" && echo yes {REPORT}")),
        ),
        pod(
            "working-directory",
            with(main(&format!("pwd {REPORT}")), &json!({"workingDir": "/tmp"})),
        ),
        pod(
            "working-directory-is-made",
            with(
                main(&format!("pwd {REPORT}")),
                &json!({"workingDir": "/made/for/it"}),
            ),
        ),
        secured(
            "user",
            &format!("echo $(id -u) $(id -g) {REPORT}"),
            json!({"runAsUser": 1234, "runAsGroup": 4321}),
        ),
        secured(
            "groups",
            &format!("id -G {REPORT}"),
            json!({"runAsUser": 1234, "runAsGroup": 4321, "supplementalGroups": [7, 8]}),
        ),
        secured("not-root", "true", json!({"runAsNonRoot": true, "runAsUser": 0}))
            .until(Until::Waits("CreateContainerConfigError")),
        pod("first-process", main(&format!("echo $$ {REPORT}"))),
        pod(
            "shared-memory",
            main(&format!("echo x > /dev/shm/f && cat /dev/shm/f {REPORT}")),
        ),
        pod(
            "devices",
            main(&format!(
                "for d in null zero random urandom tty full; do test -c /dev/$d && echo $d; done {REPORT}"
            )),
        ),
    ]
}
