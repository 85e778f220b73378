//! What pods do, and what is said of them.

use std::time::{Duration, Instant};

use futures::future::{BoxFuture, FutureExt};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use super::asked;
use super::cluster::Cluster;
use super::kept_out;

type Test = fn(Cluster) -> BoxFuture<'static, ()>;

/// The test that is run with the root directory as working directory.
pub const IN_ROOT_DIRECTORY: &str = "root_directory";

pub const ALL: &[(&str, Test)] = &[
    ("succeeds", |c| succeeds(c).boxed()),
    ("fails", |c| fails(c).boxed()),
    ("command_missing", |c| command_missing(c).boxed()),
    ("restarts", |c| restarts(c).boxed()),
    ("init_and_sidecar", |c| init_and_sidecar(c).boxed()),
    ("brief_sidecars", |c| brief_sidecars(c).boxed()),
    ("environment", |c| environment(c).boxed()),
    ("services", |c| asked::services(c).boxed()),
    ("volumes", |c| volumes(c).boxed()),
    ("deletion", |c| deletion(c).boxed()),
    ("probes", |c| probes(c).boxed()),
    ("unschedulable", |c| unschedulable(c).boxed()),
    ("names", |c| names(c).boxed()),
    ("exec", |c| asked::exec(c).boxed()),
    ("terminal", |c| asked::terminal(c).boxed()),
    ("events", |c| asked::events(c).boxed()),
    ("token", |c| asked::token(c).boxed()),
    ("processes", |c| asked::processes(c).boxed()),
    ("sub_path", |c| kept_out::sub_path(c).boxed()),
    (IN_ROOT_DIRECTORY, |c| kept_out::root_directory(c).boxed()),
];

fn shell(script: &str) -> serde_json::Value {
    json!({"name": "main", "image": "test", "command": ["sh", "-c", script]})
}

pub fn once(script: &str) -> serde_json::Value {
    json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 2, "containers": [shell(script)]})
}

pub fn main_status(pod: &Pod) -> ContainerStatus {
    let status = pod.status.clone().unwrap_or_default();
    status
        .container_statuses
        .unwrap_or_default()
        .into_iter()
        .next()
        .unwrap_or_default()
}

/// Type, status and reason of each condition.
fn conditions(pod: &Pod) -> Vec<String> {
    let status = pod.status.clone().unwrap();
    let mut all: Vec<_> = status
        .conditions
        .unwrap()
        .iter()
        .map(|c| format!("{} {} {}", c.type_, c.status, c.reason.as_deref().unwrap_or("-")))
        .collect();
    all.sort();
    all
}

async fn succeeds(cluster: Cluster) {
    cluster.create("pod", once("echo hello; hostname")).await;
    let pod = cluster.until_phase("pod", "Succeeded").await;
    assert_eq!(cluster.log("pod").await, "hello\npod\n");
    let ended = main_status(&pod).state.unwrap().terminated.unwrap();
    assert_eq!((ended.exit_code, ended.reason.as_deref()), (0, Some("Completed")));
    let pod = cluster
        .until("pod", |pod| {
            conditions(pod).contains(&"PodReadyToStartContainers False -".to_owned())
        })
        .await;
    assert_eq!(
        conditions(&pod),
        [
            "ContainersReady False PodCompleted",
            "Initialized True PodCompleted",
            "PodReadyToStartContainers False -",
            "PodScheduled True -",
            "Ready False PodCompleted",
        ]
    );
    cluster.delete("pod").await;
}

async fn fails(cluster: Cluster) {
    let mut spec = once("echo some words; echo last words >&2; exit 3");
    spec["containers"][0]["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    cluster.create("logs", spec).await;
    cluster
        .create("file", once("echo -n why > /dev/termination-log; exit 4"))
        .await;
    let ended = main_status(&cluster.until_phase("logs", "Failed").await)
        .state
        .unwrap()
        .terminated
        .unwrap();
    assert_eq!((ended.exit_code, ended.reason.as_deref()), (3, Some("Error")));
    assert!(ended.message.unwrap().contains("last words"));
    let pod = cluster.until_phase("file", "Failed").await;
    let ended = main_status(&pod).state.unwrap().terminated.unwrap();
    assert_eq!((ended.exit_code, ended.message.as_deref()), (4, Some("why")));
    assert!(conditions(&pod).contains(&"Ready False PodFailed".to_owned()));
}

async fn command_missing(cluster: Cluster) {
    let mut spec = once("");
    spec["containers"][0]["command"] = json!(["no-such-program"]);
    cluster.create("pod", spec).await;
    let ended = main_status(&cluster.until_phase("pod", "Failed").await)
        .state
        .unwrap()
        .terminated
        .unwrap();
    assert_eq!(
        (ended.exit_code, ended.reason.as_deref()),
        (128, Some("StartError"))
    );
    assert!(
        ended
            .message
            .unwrap()
            .ends_with("exec: \"no-such-program\": executable file not found in $PATH: unknown")
    );
    let mut spec = once("");
    spec["containers"][0]["command"] = json!(null);
    cluster.create("none", spec).await;
    let pod = cluster
        .until("none", |pod| {
            main_status(pod)
                .state
                .and_then(|s| s.waiting)
                .is_some_and(|w| w.reason.as_deref() == Some("CreateContainerError"))
        })
        .await;
    let waiting = main_status(&pod).state.unwrap().waiting.unwrap();
    assert!(waiting.message.unwrap().contains("add `command`"));
}

async fn restarts(cluster: Cluster) {
    let mut spec = once("echo run; exit 1");
    spec["restartPolicy"] = json!("OnFailure");
    cluster.create("pod", spec).await;
    // The first restart is at once, the second after ten seconds.
    let waits = |pod: &Pod| {
        main_status(pod)
            .state
            .and_then(|s| s.waiting)
            .is_some_and(|w| w.reason.as_deref() == Some("CrashLoopBackOff"))
    };
    let pod = cluster.until("pod", waits).await;
    let status = main_status(&pod);
    assert_eq!(status.restart_count, 1);
    assert_eq!(status.last_state.unwrap().terminated.unwrap().exit_code, 1);
    let message = status.state.unwrap().waiting.unwrap().message.unwrap();
    assert!(
        message.starts_with("back-off 10s restarting failed container=main pod=pod_default("),
        "{message}"
    );
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Running"));
    let previous = kube::api::LogParams {
        previous: true,
        ..Default::default()
    };
    assert_eq!(cluster.pods().logs("pod", &previous).await.unwrap(), "run\n");
    cluster.delete("pod").await;
}

async fn init_and_sidecar(cluster: Cluster) {
    let mut spec = once("cat /shared/first && echo main");
    let mount = json!([{"name": "shared", "mountPath": "/shared"}]);
    spec["volumes"] = json!([{"name": "shared", "emptyDir": {}}]);
    spec["containers"][0]["volumeMounts"] = mount.clone();
    spec["initContainers"] = json!([
        {"name": "side", "image": "test", "restartPolicy": "Always", "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.01; done"]},
        {"name": "first", "image": "test", "command": ["sh", "-c", "echo first > /shared/first"], "volumeMounts": mount},
    ]);
    cluster.create("pod", spec).await;
    let pod = cluster.until_phase("pod", "Succeeded").await;
    assert_eq!(cluster.log("pod").await, "first\nmain\n");
    let init = pod.status.unwrap().init_container_statuses.unwrap();
    assert!(
        init.iter()
            .all(|status| status.state.as_ref().unwrap().terminated.is_some()),
        "{init:#?}"
    );
}

/// A sidecar need only have started for others to follow, even if it has ended by the time somebody
/// looks.
async fn brief_sidecars(cluster: Cluster) {
    let mut spec = once("echo main");
    let side = |number: i32| {
        let name = format!("side-{number}");
        json!({"name": name, "image": "test", "restartPolicy": "Always", "command": ["false"]})
    };
    spec["initContainers"] = (0..8).map(side).collect();
    cluster.create("pod", spec).await;
    cluster.until_phase("pod", "Succeeded").await;
    assert_eq!(cluster.log("pod").await, "main\n");
}

async fn environment(cluster: Cluster) {
    cluster
        .config_map("settings", json!({"KEY": "value", "OTHER": "x"}))
        .await;
    let mut spec = once("echo $NAME $FROM $EXPANDED $PRE_OTHER $IP $CPU $0 $1");
    spec["containers"][0]["args"] = json!(["$(FROM)", "$$(FROM)"]);
    spec["containers"][0]["resources"] = json!({"requests": {"cpu": "250m"}});
    spec["containers"][0]["envFrom"] = json!([{"prefix": "PRE_", "configMapRef": {"name": "settings"}}]);
    spec["containers"][0]["env"] = json!([
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "FROM", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "KEY"}}},
        {"name": "EXPANDED", "value": "<$(FROM)>"},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1m"}}},
    ]);
    cluster.create("pod", spec.clone()).await;
    let pod = cluster.until_phase("pod", "Succeeded").await;
    let address = pod.status.unwrap().pod_ip.unwrap();
    assert_eq!(
        cluster.log("pod").await,
        format!("pod value <value> x {address} 250 value $(FROM)\n")
    );
    spec["containers"][0]["env"][1]["valueFrom"]["configMapKeyRef"]["name"] = json!("later");
    cluster.create("later", spec).await;
    let pod = cluster
        .until("later", |pod| {
            main_status(pod)
                .state
                .and_then(|s| s.waiting)
                .is_some_and(|w| w.message.is_some())
        })
        .await;
    let waiting = main_status(&pod).state.unwrap().waiting.unwrap();
    assert_eq!(waiting.reason.as_deref(), Some("CreateContainerConfigError"));
    assert_eq!(waiting.message.as_deref(), Some("configmap \"later\" not found"));
    cluster.config_map("later", json!({"KEY": "now"})).await;
    cluster.until_phase("later", "Succeeded").await;
}

async fn volumes(cluster: Cluster) {
    cluster.config_map("files", json!({"a": "one", "b": "two"})).await;
    let mut spec = once(
        "cat /files/a /labels/labels /sub; until grep -q new /files/a; do sleep 0.02; done; echo; cat /files/a",
    );
    spec["volumes"] = json!([
        {"name": "files", "configMap": {"name": "files"}},
        {"name": "labels", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    ]);
    spec["containers"][0]["volumeMounts"] = json!([
        {"name": "files", "mountPath": "/files"},
        {"name": "labels", "mountPath": "/labels"},
        {"name": "files", "mountPath": "/sub", "subPath": "b"},
    ]);
    cluster.create("pod", spec).await;
    cluster.until_phase("pod", "Running").await;
    let maps = kube::Api::<k8s_openapi::api::core::v1::ConfigMap>::default_namespaced(cluster.client.clone());
    let change = Patch::Merge(json!({"data": {"a": "new"}}));
    maps.patch("files", &PatchParams::default(), &change)
        .await
        .unwrap();
    cluster.until_phase("pod", "Succeeded").await;
    assert_eq!(cluster.log("pod").await, "oneapp=\"test\"\nname=\"pod\"two\nnew");
}

async fn deletion(cluster: Cluster) {
    cluster
        .create(
            "polite",
            once("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done"),
        )
        .await;
    cluster.until_phase("polite", "Running").await;
    cluster.delete("polite").await;
    // It does not hear, and is ended after two seconds.
    cluster.create("deaf", once("echo ready; sleep 1000")).await;
    cluster.until_phase("deaf", "Running").await;
    let begin = Instant::now();
    cluster.delete("deaf").await;
    let took = begin.elapsed();
    assert!(took > Duration::from_millis(1900), "{took:?}");
}

async fn probes(cluster: Cluster) {
    let mut spec = once("sleep 1000");
    spec["restartPolicy"] = json!("Always");
    let exec = |script: &str| json!({"exec": {"command": ["sh", "-c", script]}, "periodSeconds": 1, "failureThreshold": 1});
    spec["terminationGracePeriodSeconds"] = json!(0);
    spec["containers"][0]["command"] = json!(["sh", "-c", "touch /alive; sleep 1000"]);
    spec["containers"][0]["readinessProbe"] = exec("test -e /alive");
    spec["containers"][0]["livenessProbe"] = exec("test -e /alive && rm /alive");
    spec["containers"][0]["livenessProbe"]["initialDelaySeconds"] = json!(1);
    cluster.create("pod", spec).await;
    let ready = |pod: &Pod| main_status(pod).ready;
    cluster.until("pod", ready).await;
    let pod = cluster
        // On a busy machine it may be alive for too short a time to be seen ready at first.
        .until("pod", |pod| main_status(pod).restart_count >= 1)
        .await;
    assert_eq!(
        main_status(&pod)
            .last_state
            .unwrap()
            .terminated
            .unwrap()
            .exit_code,
        137
    );
    cluster.delete("pod").await;
}

async fn unschedulable(cluster: Cluster) {
    let mut spec = once("true");
    spec["containers"][0]["resources"] =
        json!({"requests": {"nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"}});
    cluster.create("pod", spec).await;
    let condition = |pod: &Pod| {
        let conditions = pod
            .status
            .clone()
            .and_then(|status| status.conditions)
            .unwrap_or_default();
        conditions
            .into_iter()
            .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
    };
    let pod = cluster.until("pod", |pod| condition(pod).is_some()).await;
    let condition = condition(&pod).unwrap();
    assert_eq!(condition.reason.as_deref(), Some("Unschedulable"));
    assert_eq!(
        condition.message.as_deref(),
        Some(
            "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
        )
    );
    // Spread over nodes: the third finds none.
    let mut spec = once("sleep 1000");
    spec["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "test"}}},
    ]}});
    for name in ["a", "b", "c"] {
        cluster.create(name, spec.clone()).await;
    }
    let nodes = [
        cluster.until_phase("a", "Running").await,
        cluster.until_phase("b", "Running").await,
    ];
    let nodes = nodes.map(|pod| pod.spec.unwrap().node_name.unwrap());
    assert_ne!(nodes[0], nodes[1]);
    let pod = cluster
        .until("c", |pod| {
            !pod.status
                .clone()
                .unwrap()
                .conditions
                .unwrap_or_default()
                .is_empty()
        })
        .await;
    let message = pod
        .status
        .unwrap()
        .conditions
        .unwrap()
        .into_iter()
        .next()
        .unwrap()
        .message
        .unwrap();
    assert!(
        message.starts_with("0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."),
        "{message}"
    );
}

async fn names(cluster: Cluster) {
    let services =
        kube::Api::<k8s_openapi::api::core::v1::Service>::default_namespaced(cluster.client.clone());
    for (name, address) in [("job", Some("None")), ("web", None)] {
        let service = json!({"metadata": {"name": name}, "spec": {
            "clusterIP": address, "selector": {"name": "server"}, "ports": [{"port": 80, "targetPort": 8080}],
            "publishNotReadyAddresses": true,
        }});
        services
            .create(&PostParams::default(), &serde_json::from_value(service).unwrap())
            .await
            .unwrap();
    }
    let listen = "import socket\ns=socket.create_server(('', 8080))\nwhile True: c,_=s.accept(); c.send(b'here'); c.close()";
    let mut spec = once("");
    spec["hostname"] = json!("zero");
    spec["subdomain"] = json!("job");
    spec["containers"][0]["command"] = json!(["/usr/bin/python3", "-c", listen]);
    spec["containers"][0]["readinessProbe"] = json!({"tcpSocket": {"port": 8080}, "periodSeconds": 1});
    cluster.create("server", spec).await;
    let pod = cluster.until("server", |pod| main_status(pod).ready).await;
    let address = pod.status.unwrap().pod_ip.unwrap();
    let ask = "import socket, time\n\
        for n in ['zero.job', 'job', 'zero.job.default.svc.cluster.local']: print(socket.gethostbyname(n))\n\
        print(socket.create_connection(('web', 80), 5).recv(9).decode())\n\
        t=time.time()\n\
        try: socket.gethostbyname('example.com')\n\
        except OSError: print('unknown', time.time()-t < 1)";
    let mut spec = once("");
    spec["containers"][0]["command"] = json!(["/usr/bin/python3", "-c", ask]);
    cluster.create("client", spec).await;
    cluster
        .until("client", |pod| {
            main_status(pod).state.and_then(|s| s.terminated).is_some()
        })
        .await;
    assert_eq!(
        cluster.log("client").await,
        format!("{address}\n{address}\n{address}\nhere\nunknown True\n")
    );
}
