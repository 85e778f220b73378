//! The operator as a platform engineer meets it: its own image, installed by kubectl, webhooks
//! called by the API server.
//!
//! One installation serves all tests, in the order of their names, one at a time: run it by
//! `make test-install`, which sets `TRAINYARD_BIN` and `TRAINYARD_IMAGE`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests, which clippy.toml lets unwrap"
)]

mod t5_launchers;

use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use trainyard_eventually::Wait;
use trainyard_testkit::cluster::Cluster;
use trainyard_testkit::images;

/// The pause between two looks: each is a process of kubectl, which takes a tenth of a second of a
/// core.
const KUBECTL_INTERVAL: Duration = Duration::from_millis(250);

const IMAGE: &str = "registry.example/trainyard:dev";

fn cluster() -> Cluster {
    let cluster = Cluster::from_env().filter(|cluster| !cluster.state().nodes.is_empty());
    cluster.unwrap_or_else(|| panic!("this suite needs a test cluster: use `make test-install`"))
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: use `make test-install`"))
}

fn trainyard(arguments: &[&str]) -> String {
    let output = Command::new(variable("TRAINYARD_BIN"))
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn kubectl(line: &str) -> String {
    cluster()
        .kubectl(&line.split_whitespace().collect::<Vec<_>>(), None)
        .unwrap()
}

fn apply(manifest: &str) -> Result<String, String> {
    cluster()
        .kubectl(&["apply", "-f", "-"], Some(manifest))
        .map_err(|error| format!("{error:#}"))
}

fn json(line: &str) -> Value {
    serde_json::from_str(&kubectl(&format!("{line} -o json"))).unwrap()
}

/// The same of an object that may not be there yet.
fn try_json(line: &str) -> Result<Value, String> {
    let line = format!("{line} -o json");
    let found = cluster().kubectl(&line.split_whitespace().collect::<Vec<_>>(), None);
    let found = found.map_err(|error| error.to_string())?;
    Ok(serde_json::from_str(&found).unwrap())
}

fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let mut wait = Wait::new(what);
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(seen) => {
                if !wait.has_patience(seen) {
                    let logs = "logs -n trainyard-system deployment/trainyard-operator --all-pods --tail 40";
                    let logs = cluster().kubectl(&logs.split_whitespace().collect::<Vec<_>>(), None);
                    panic!(
                        "{wait}\noperator: {}",
                        logs.unwrap_or_else(|error| error.to_string())
                    );
                }
            }
        }
        thread::sleep(KUBECTL_INTERVAL);
    }
}

fn phase(namespace: &str, job: &str, wanted: &str) -> Value {
    eventually(&format!("{job} becomes {wanted}"), || {
        let job = json(&format!("get tj -n {namespace} {job}"));
        let phase = job["status"]["phase"].as_str().unwrap_or_default();
        if phase == wanted {
            Ok(job.clone())
        } else {
            Err(format!("{:#}", job["status"]))
        }
    })
}

/// A job of pods that sleep, or do something else.
fn job(name: &str, replicas: u32, command: &str) -> String {
    format!(
        r#"
apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: {name}, namespace: users}}
spec:
  framework: {{name: custom}}
  roles:
  - name: worker
    replicas: {replicas}
    template:
      spec:
        terminationGracePeriodSeconds: 0
        securityContext: {{runAsNonRoot: true, runAsUser: 1000, seccompProfile: {{type: RuntimeDefault}}}}
        containers:
        - name: main
          image: example/busybox:1
          command: [sh, -c, "{command}"]
          securityContext: {{allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}}
"#
    )
}

fn leader() -> String {
    let lease = json("get lease -n trainyard-system trainyard-operator");
    lease["spec"]["holderIdentity"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn t1_applies_by_client_and_by_server_twice_and_becomes_ready() {
    cluster()
        .load_image(variable("TRAINYARD_IMAGE").as_ref())
        .unwrap();
    let kinds = "--compat=all";
    let manifests = trainyard(&["install", "--image", IMAGE, "--exec", kinds]);
    let definitions = trainyard(&["install", kinds, "--compat-crds-only"]);
    cluster()
        .kubectl(&["create", "-f", "-"], Some(&definitions))
        .unwrap();
    // A definition that is there is left alone.
    let again = cluster().kubectl(&["create", "-f", "-"], Some(&definitions));
    assert!(format!("{:#}", again.unwrap_err()).contains("already exists"));
    for options in [
        &["apply", "-f", "-"][..],
        &["apply", "--server-side", "--force-conflicts", "-f", "-"],
    ] {
        for _ in 0..2 {
            cluster().kubectl(options, Some(&manifests)).unwrap();
        }
    }
    kubectl("rollout status -n trainyard-system deployment/trainyard-operator --timeout=180s");
    apply(
        "{apiVersion: v1, kind: Namespace, metadata: {name: users, labels: {pod-security.kubernetes.io/enforce: restricted}}}",
    )
    .unwrap();
    eventually("the webhooks have a CA", || {
        let all = [
            json("get mutatingwebhookconfiguration trainyard"),
            json("get validatingwebhookconfiguration trainyard"),
        ];
        let has = |c: &Value| {
            c["webhooks"][0]["clientConfig"]["caBundle"]
                .as_str()
                .is_some_and(|ca| !ca.is_empty())
        };
        if all.iter().all(has) {
            Ok(())
        } else {
            Err("caBundle is empty".to_owned())
        }
    });
}

#[test]
fn t2_explains_itself() {
    // kubectl has looked at the server before the definitions were there; asking for jobs makes it
    // look again.
    kubectl("get tj -A");
    let explain = ["explain", "tj.spec.roles"];
    let text = eventually("kubectl knows the kind", || {
        cluster()
            .kubectl(&explain, None)
            .map_err(|error| error.to_string())
    });
    println!("{text}");
    assert!(
        text.contains("restartPolicy\t<string>") && text.contains("ExitCode"),
        "{text}"
    );
    assert!(kubectl("explain tj.spec").contains("The framework that trains"));
}

#[test]
fn t3_webhooks_default_and_refuse_over_tls_with_every_error_at_once() {
    eventually("a job is defaulted by the webhook", || {
        apply(&job("defaulted", 1, "sleep 600"))?;
        let job = json("get tj -n users defaulted");
        let policy = &job["spec"]["roles"][0]["restartPolicy"];
        kubectl("delete tj -n users defaulted");
        if policy == "Never" {
            Ok(())
        } else {
            Err(format!("restartPolicy is {policy}"))
        }
    });
    let bad = job("bad", 1, "true").replace("name: custom", "name: pytorch").replace(
        "image: example/busybox:1",
        "image: example/busybox:1\n          env: [{name: RANK, value: '1'}, {name: WORLD_SIZE, value: '2'}]",
    );
    let error = apply(&bad.replace(
        "        terminationGracePeriodSeconds: 0",
        "        restartPolicy: Always",
    ))
    .unwrap_err();
    for path in [
        "spec.roles[0].template.spec.containers[0].env[0].name",
        "spec.roles[0].template.spec.containers[0].env[1].name",
        "spec.roles[0].template.spec.restartPolicy",
    ] {
        assert!(error.contains(path), "{path} is not in:\n{error}");
    }
    assert!(
        apply(&job("bad", 1, "true").replace("name: custom", "name: tensorfly"))
            .unwrap_err()
            .contains("tensorfly")
    );
}

#[test]
fn t4_an_immutable_field_is_refused_and_a_mutable_one_is_not() {
    apply(&job("fixed", 1, "sleep 600")).unwrap();
    let error = apply(&job("fixed", 1, "sleep 601")).unwrap_err();
    assert!(
        error.contains("spec.roles[0].template") && error.contains("suspend"),
        "{error}"
    );
    apply(&(job("fixed", 1, "sleep 600") + "  runPolicy: {ttlSecondsAfterFinished: 5}\n")).unwrap();
    kubectl("delete tj -n users fixed");
}

/// What else the webhook answers for, each with the path that its users know.
#[test]
fn t4_a_bad_framework_and_bad_jobs_of_other_operators_are_refused() {
    let bad = [
        (
            "{apiVersion: trainyard.dev/v1alpha1, kind: Framework, metadata: {name: bad}, \
             spec: {env: [{name: A, value: job.nme}]}}",
            "spec.env[0].value: column 1: job has no field \"nme\": it has name, namespace",
        ),
        (
            "{apiVersion: ares.io/v1, kind: AresJob, metadata: {name: bad, namespace: users}, \
             spec: {frameworkType: standalone, jobPhasePolicy: {failed: [[ghost]]}, roleSpecs: {worker: {template: \
             {spec: {containers: [{name: main, image: i}]}}}}}}",
            "spec.jobPhasePolicy.failed[0][0]: there is no role \"ghost\": name one of worker",
        ),
        (
            "{apiVersion: mpba.fbk.eu/v1, kind: MXJob, metadata: {name: bad, namespace: users}, \
             spec: [{replicaType: SERVANT, template: {spec: {containers: [{name: main, image: i}]}}}]}",
            "spec[0].replicaType: there is no type \"SERVANT\": give one of scheduler, server, worker",
        ),
    ];
    for (manifest, wanted) in bad {
        let refused = apply(manifest).unwrap_err();
        assert!(refused.contains(wanted), "{wanted} is not in:\n{refused}");
    }
}

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/pytorch-ddp/job.yaml");

fn final_loss(log: &str) -> f64 {
    let loss = log.lines().find_map(|line| line.split_once("final loss "));
    let (_, loss) = loss.unwrap_or_else(|| panic!("it has no loss: {log}"));
    loss.trim().parse().unwrap()
}

#[test]
fn t5_pytorch_trains_without_a_cluster_from_the_same_manifest() {
    let place = tempfile::tempdir().unwrap();
    // The root of containers is open to everybody, which a directory for temporary files is not.
    let root = place.path().join("root");
    std::fs::create_dir(&root).unwrap();
    images::unpack(&images::torch().unwrap(), &root).unwrap();
    let image = format!("{}={}", images::TORCH, root.display());
    let log = trainyard(&["run", EXAMPLE, "--image", &image]);
    println!("{log}");
    assert!(final_loss(&log) < 1e-2, "{log}");
    assert!(log.contains("rank 0 of 2"), "{log}");
}

#[test]
fn t5_pytorch_trains_on_two_nodes() {
    cluster()
        .kubectl(&["apply", "-n", "users", "-f", EXAMPLE], None)
        .unwrap();
    phase("users", "pytorch-ddp", "Succeeded");
    let pods = json("get pods -n users -l trainyard.dev/job=pytorch-ddp");
    let nodes: std::collections::BTreeSet<&str> = pods["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|pod| pod["spec"]["nodeName"].as_str())
        .collect();
    assert_eq!(nodes.len(), 2, "both nodes took part");
    let log = kubectl("logs -n users pytorch-ddp-worker-0");
    println!("{log}");
    assert!(final_loss(&log) < 1e-2, "{log}");
    assert!(log.contains("rank 0 of 2"), "{log}");
    kubectl("delete tj -n users pytorch-ddp");
}

/// Bugs of others: a master that was replaced had another address, and pods shared nodes.
#[test]
fn t5_ddp_on_two_nodes_goes_on_when_its_master_is_killed_in_mid_training() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/azure-ddp");
    cluster()
        .kubectl(&["apply", "-n", "users", "-k", example], None)
        .unwrap();
    eventually("it is in mid-training", || {
        let log = cluster().kubectl(&["logs", "-n", "users", "azure-ddp-worker-0"], None);
        let log = log.map_err(|error| error.to_string())?;
        log.contains("step  10").then_some(()).ok_or(log)
    });
    let pods = json("get pods -n users -l trainyard.dev/job=azure-ddp");
    let pods = pods["items"].as_array().unwrap();
    let nodes: std::collections::BTreeSet<&str> = pods
        .iter()
        .filter_map(|pod| pod["spec"]["nodeName"].as_str())
        .collect();
    assert_eq!((pods.len(), nodes.len()), (2, 2), "one pod per node");
    let address = || json("get service -n users azure-ddp-master")["spec"]["clusterIP"].clone();
    let uid = || json("get pod -n users azure-ddp-worker-0")["metadata"]["uid"].clone();
    let (former_address, former_master) = (address(), uid());
    kubectl("delete pod -n users azure-ddp-worker-0");

    phase("users", "azure-ddp", "Succeeded");
    let job = json("get tj -n users azure-ddp");
    let restarts = &job["status"]["restarts"];
    assert_eq!(restarts["failures"], 0, "{restarts:#}");
    assert_eq!(restarts["disruptions"], 1, "{restarts:#}");
    assert_ne!(uid(), former_master);
    assert_eq!(address(), former_address, "where workers look for their master");
    for (pod, rank) in [("azure-ddp-worker-0", 0), ("azure-ddp-worker-1", 1)] {
        let log = kubectl(&format!("logs -n users {pod}"));
        println!("{log}");
        assert!(log.contains(&format!("rank {rank} of 2")), "{log}");
        assert!(final_loss(&log) < 1e-2, "{log}");
    }
    kubectl("delete tj -n users azure-ddp");
}

/// A job of a launcher that waits, inside of its pod, until the workers are ready; these are when
/// they are told so.
fn waiting(name: &str) -> String {
    let role = |role: &str, replicas: u32, more: &str, command: &str, probe: &str| {
        format!(
            r#"
  - name: {role}
    replicas: {replicas}
{more}    template:
      spec:
        terminationGracePeriodSeconds: 0
        securityContext: {{runAsNonRoot: true, runAsUser: 1000, seccompProfile: {{type: RuntimeDefault}}}}
        volumes: [{{name: signs, emptyDir: {{}}}}]
        containers:
        - name: main
          image: example/busybox:1
          command: [sh, -c, "{command}"]
          volumeMounts: [{{name: signs, mountPath: /signs}}]
{probe}          securityContext: {{allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}}"#
        )
    };
    let launcher = role(
        "launcher",
        1,
        "    dependsOn: [{role: worker, state: Ready}]\n",
        "echo started",
        "",
    );
    let worker = role(
        "worker",
        2,
        "",
        "while true; do sleep 0.2; done",
        "          readinessProbe: {exec: {command: [test, -e, /signs/ready]}, periodSeconds: 1}\n",
    );
    format!(
        "
apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: {name}, namespace: users}}
spec:
  framework: {{name: custom}}
  completion: {{succeededWhen: [{{allOf: [launcher]}}]}}
  roles:{launcher}{worker}
"
    )
}

/// The container that waits in a pod, once it does.
fn waiting_container(pod: &str) -> Value {
    eventually(&format!("{pod} waits"), || {
        let pod = try_json(&format!("get pod -n users {pod}"))?;
        let wait = pod["status"]["initContainerStatuses"][0].clone();
        if wait["name"] == "trainyard-wait" && wait["state"]["running"].is_object() {
            Ok(pod)
        } else {
            Err(format!("{:#}", pod["status"]))
        }
    })
}

fn tell_workers(job: &str, workers: &[u32]) {
    for worker in workers {
        kubectl(&format!(
            "exec -n users {job}-worker-{worker} -- touch /signs/ready"
        ));
    }
}

#[test]
fn t5_a_pod_waits_inside_until_the_operator_lets_it_start() {
    apply(&waiting("order")).unwrap();
    let pod = waiting_container("order-launcher-0");
    assert!(pod["spec"]["nodeName"].is_string(), "it has its place already");
    for worker in ["order-worker-0", "order-worker-1"] {
        eventually("the worker runs", || {
            let phase = try_json(&format!("get pod -n users {worker}"))?["status"]["phase"].clone();
            if phase == "Running" {
                Ok(())
            } else {
                Err(phase.to_string())
            }
        });
    }
    tell_workers("order", &[0]);
    eventually("it says what it waits for", || {
        let log = kubectl("logs -n users order-launcher-0 -c trainyard-wait");
        if log.contains("waits for the role worker to be ready") {
            Ok(())
        } else {
            Err(log)
        }
    });
    waiting_container("order-launcher-0");
    tell_workers("order", &[1]);
    phase("users", "order", "Succeeded");
    assert!(kubectl("logs -n users order-launcher-0 -c main").contains("started"));
    // The operator lets it start by the observer; the annotation is for those who can't hear that.
    let log = kubectl("logs -n users order-launcher-0 -c trainyard-wait");
    assert!(!log.contains("told to start now"), "{log}");
    kubectl("delete tj -n users order");
}

#[test]
fn t5_a_person_can_end_the_wait() {
    apply(&waiting("impatient")).unwrap();
    waiting_container("impatient-launcher-0");
    kubectl("annotate pod -n users impatient-launcher-0 trainyard.dev/start=now");
    phase("users", "impatient", "Succeeded");
    kubectl("delete tj -n users impatient");
}

#[test]
fn t5_an_operator_that_is_away_fails_nobody_who_waits() {
    apply(&waiting("patient")).unwrap();
    waiting_container("patient-launcher-0");
    for worker in [0, 1] {
        eventually("the worker runs", || {
            let pod = try_json(&format!("get pod -n users patient-worker-{worker}"))?;
            let phase = pod["status"]["phase"].clone();
            if phase == "Running" {
                Ok(())
            } else {
                Err(phase.to_string())
            }
        });
    }
    // All replicas at once, and without a word.
    kubectl("delete pod -n trainyard-system -l app.kubernetes.io/name=trainyard --grace-period=0 --force");
    tell_workers("patient", &[0, 1]);
    let done = phase("users", "patient", "Succeeded");
    assert_eq!(done["status"]["restarts"]["failures"], 0, "{done:#}");
    let pod = json("get pod -n users patient-launcher-0");
    assert_eq!(pod["status"]["initContainerStatuses"][0]["restartCount"], 0);
    kubectl("rollout status -n trainyard-system deployment/trainyard-operator --timeout=180s");
    kubectl("delete tj -n users patient");
}

#[test]
fn t6_the_standby_finishes_what_a_killed_leader_began() {
    let holder = leader();
    let pod = holder.split('_').next().unwrap().to_owned();
    let node = json(&format!("get pod -n trainyard-system {pod}"))["spec"]["nodeName"]
        .as_str()
        .unwrap()
        .to_owned();
    println!("the leader is {pod} on {node}");
    apply(&job("orphan", 24, "sleep 600")).unwrap();
    eventually("some pods of the job exist", || {
        let pods = json("get pods -n users -l trainyard.dev/job=orphan");
        if pods["items"].as_array().is_some_and(|pods| !pods.is_empty()) {
            Ok(())
        } else {
            Err("none".to_owned())
        }
    });
    // Force: SIGKILL, with no time to finish or to give the lease back.
    kubectl(&format!(
        "delete pod -n trainyard-system {pod} --grace-period=0 --force"
    ));
    phase("users", "orphan", "Running");
    assert_ne!(leader(), holder, "another replica leads now");
    let pods = json("get pods -n users -l trainyard.dev/job=orphan");
    let mut names: Vec<&str> = pods["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|pod| pod["metadata"]["name"].as_str())
        .collect();
    names.sort_unstable();
    let mut wanted: Vec<String> = (0..24).map(|i| format!("orphan-worker-{i}")).collect();
    wanted.sort_unstable();
    assert_eq!(names, wanted);
    kubectl("delete tj -n users orphan");
}

#[test]
fn t7_a_dead_operator_blocks_nobodys_deletion() {
    apply(&job("left", 1, "sleep 600")).unwrap();
    phase("users", "left", "Running");
    kubectl("scale -n trainyard-system deployment/trainyard-operator --replicas=0");
    eventually("the operator is gone", || {
        let pods = json("get pods -n trainyard-system -l app.kubernetes.io/name=trainyard");
        if pods["items"].as_array().is_some_and(Vec::is_empty) {
            Ok(())
        } else {
            Err("it is there".to_owned())
        }
    });
    kubectl("annotate tj -n users left touched=yes");
    kubectl("delete tj -n users left --cascade=foreground --timeout=60s");
    eventually("its pods are collected", || {
        let pods = json("get pods -n users -l trainyard.dev/job=left");
        if pods["items"].as_array().is_some_and(Vec::is_empty) {
            Ok(())
        } else {
            Err("they are there".to_owned())
        }
    });
}

#[test]
fn t9_uninstalls() {
    let manifests = trainyard(&["uninstall", "--crds"]);
    kubectl("delete tj -A --all --timeout=60s");
    cluster()
        .kubectl(
            &["delete", "-f", "-", "--ignore-not-found", "--timeout=120s"],
            Some(&manifests),
        )
        .unwrap();
    assert!(
        cluster()
            .kubectl(&["get", "crd", "trainingjobs.trainyard.dev"], None)
            .is_err()
    );
    kubectl("delete namespace users --wait=false");
}
