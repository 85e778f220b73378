//! The test cluster itself: what the other suites rely on. Run it by `hack/suite cluster`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests, which clippy.toml lets unwrap"
)]

use std::fs;
use std::path::Path;
use std::process::Command;

use trainyard_eventually::eventually;
use trainyard_testkit::cluster::Cluster;
use trainyard_testkit::images::BUSYBOX;

/// A suite that needs a cluster must not pass by doing nothing.
fn cluster() -> Cluster {
    let cluster = Cluster::from_env().filter(|cluster| !cluster.state().nodes.is_empty());
    cluster.unwrap_or_else(|| panic!("this suite needs a test cluster: use `make test-cluster`"))
}

fn kubectl(cluster: &Cluster, line: &str) -> String {
    cluster
        .kubectl(&line.split_whitespace().collect::<Vec<_>>(), None)
        .unwrap()
}

/// A namespace that goes away with the test.
struct Namespace<'a> {
    cluster: &'a Cluster,
    name: String,
}

impl<'a> Namespace<'a> {
    fn new(cluster: &'a Cluster, name: &str) -> Self {
        let manifest = format!(
            r#"{{"apiVersion": "v1", "kind": "Namespace", "metadata": {{"name": "{name}",
                "labels": {{"pod-security.kubernetes.io/enforce": "restricted"}}}}}}"#
        );
        cluster.kubectl(&["apply", "-f", "-"], Some(&manifest)).unwrap();
        eventually("the namespace has its service account", || {
            let get = ["get", "serviceaccount", "default", "-n", name];
            cluster.kubectl(&get, None).map_err(|error| error.to_string())
        });
        Self {
            cluster,
            name: name.to_owned(),
        }
    }

    fn apply(&self, manifest: &str) {
        self.cluster
            .kubectl(&["apply", "-n", &self.name, "-f", "-"], Some(manifest))
            .unwrap();
    }

    /// A pod of the restricted profile that serves its own name on port 8080.
    fn pod(&self, name: &str, node: &str) {
        self.apply(&format!(
            r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: web}}}}
spec:
  hostname: {name}
  subdomain: peers
  nodeName: {node}
  terminationGracePeriodSeconds: 0
  securityContext: {{runAsNonRoot: true, runAsUser: 1234, seccompProfile: {{type: RuntimeDefault}}}}
  containers:
  - name: main
    image: {BUSYBOX}
    command: [sh, -c, "echo started; while true; do hostname | nc -l -p 8080; done"]
    securityContext: {{allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}}
"#
        ));
    }

    fn exec(&self, pod: &str, script: &str) -> Result<String, String> {
        let arguments = ["exec", "-n", &self.name, pod, "--", "sh", "-c", script];
        self.cluster
            .kubectl(&arguments, None)
            .map_err(|error| error.to_string())
    }
}

impl Drop for Namespace<'_> {
    fn drop(&mut self) {
        let _ = self
            .cluster
            .kubectl(&["delete", "namespace", &self.name, "--wait=false"], None);
    }
}

#[test]
fn pods_have_names_services_logs_and_the_api() {
    let cluster = cluster();
    let space = Namespace::new(&cluster, "selftest-network");
    space.apply(
        r"
apiVersion: v1
kind: Service
metadata: {name: peers}
spec: {clusterIP: None, publishNotReadyAddresses: true, selector: {app: web}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
",
    );
    space.pod("one", "node-a");
    space.pod("two", "node-b");
    kubectl(
        &cluster,
        "wait -n selftest-network --for=condition=Ready pod --all --timeout=60s",
    );

    let name = "two.peers.selftest-network.svc.cluster.local";
    let said = eventually("a pod on the other node by its name", || {
        space.exec("one", &format!("nc {name} 8080 </dev/null | grep ."))
    });
    assert_eq!(said.trim(), "two");
    let said = eventually("the same by the short name", || {
        space.exec("one", "nc two.peers 8080 </dev/null | grep .")
    });
    assert_eq!(said.trim(), "two");
    let said = eventually("a Service", || space.exec("one", "nc web 80 </dev/null | grep ."));
    assert!(["one", "two"].contains(&said.trim()), "{said}");
    eventually("the API from a pod", || {
        space.exec("two", "nc -w 2 kubernetes.default.svc 443 </dev/null")
    });
    let way_out = space.exec("one", "nc -w 2 192.0.2.1 80 </dev/null").unwrap_err();
    assert!(
        way_out.contains("unreachable"),
        "pods can't leave the machine: {way_out}"
    );
    assert_eq!(
        kubectl(&cluster, "logs -n selftest-network one").trim(),
        "started"
    );
}

#[test]
fn the_api_server_reaches_webhooks_in_pods() {
    let cluster = cluster();
    let space = Namespace::new(&cluster, "selftest-webhook");
    space.pod("hook", "node-b");
    space.apply(
        r#"
apiVersion: v1
kind: Service
metadata: {name: hook}
spec: {selector: {app: web}, ports: [{port: 443, targetPort: 8080}]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: selftest}
webhooks:
- name: selftest.trainyard.dev
  clientConfig: {service: {name: hook, namespace: selftest-webhook, path: /}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: selftest-webhook}}
  sideEffects: None
  admissionReviewVersions: [v1]
  timeoutSeconds: 3
"#,
    );
    kubectl(
        &cluster,
        "wait -n selftest-webhook --for=condition=Ready pod/hook --timeout=60s",
    );
    // The pod does not speak TLS: that the API server notices means that it got there.
    eventually("the API server calls the pod", || {
        let create = ["create", "configmap", "probe", "-n", "selftest-webhook"];
        let refused = cluster
            .kubectl(&create, None)
            .err()
            .map(|error| error.to_string());
        let refused = refused.ok_or("the webhook was not called")?;
        if refused.contains("TLS handshake") || refused.contains("EOF") {
            Ok(())
        } else {
            Err(refused)
        }
    });
    kubectl(&cluster, "delete validatingwebhookconfiguration selftest");
}

/// What a cluster could leave on the machine.
fn traces() -> Vec<String> {
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let mut traces = run("ip", &["-o", "link"]);
    traces.extend(run("ip", &["-4", "route"]));
    traces.extend(
        fs::read_to_string("/proc/self/mounts")
            .unwrap()
            .lines()
            .map(str::to_owned),
    );
    for dir in ["/run", "/run/netns", "/var/lib", "/var/log", "/opt", "/etc"] {
        let items = fs::read_dir(dir).into_iter().flatten().flatten();
        traces.extend(items.map(|item| item.path().display().to_string()));
    }
    for item in fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
        let items = fs::read_dir(item.path()).into_iter().flatten().flatten();
        traces.extend(
            items
                .filter(|item| item.path().is_dir())
                .map(|item| item.path().display().to_string()),
        );
    }
    for setting in [
        "vm/overcommit_memory",
        "kernel/panic",
        "kernel/panic_on_oops",
        "net/ipv4/ip_forward",
    ] {
        traces.push(format!(
            "{setting}={}",
            fs::read_to_string(Path::new("/proc/sys").join(setting)).unwrap()
        ));
    }
    traces.sort();
    traces
}

fn processes_with(word: &str) -> Vec<String> {
    let items = fs::read_dir("/proc").unwrap().flatten();
    let lines = items.filter_map(|item| fs::read(item.path().join("cmdline")).ok());
    lines
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(word))
        .collect()
}

#[test]
fn a_cluster_leaves_nothing_on_the_machine() {
    // It is another one that is looked at, but where there is none to be had that one would not
    // start either.
    cluster();
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("c");
    let before = traces();
    let pod = "run left --image=example/busybox:1 --restart=Never --command -- sleep 98765";
    let script =
        format!("kubectl {pod} && kubectl wait --for=condition=Ready pod/left --timeout=60s && exit 7");
    let status = Command::new(env!("CARGO_BIN_EXE_testcluster"))
        .args(["run", "--dir"])
        .arg(&dir)
        .args(["--", "sh", "-c", &script])
        .env_remove("TRAINYARD_TEST_CLUSTER")
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(7), "the command's exit code is handed on");
    eventually("nothing is left", || {
        let after = traces();
        let new: Vec<_> = after.iter().filter(|trace| !before.contains(trace)).collect();
        let gone: Vec<_> = before.iter().filter(|trace| !after.contains(trace)).collect();
        let mut running = processes_with(&dir.display().to_string());
        running.extend(processes_with("sleep 98765"));
        let clean = new.is_empty() && gone.is_empty() && running.is_empty() && !dir.exists();
        if clean {
            Ok(())
        } else {
            Err(format!("new: {new:?}, gone: {gone:?}, running: {running:?}"))
        }
    });
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "not even a lock");
}
