//! What can be asked of a pod while it runs, and what is told of it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::SinkExt;
use k8s_openapi::api::core::v1::{Event, Service};
use kube::api::{AttachParams, PostParams, TerminalSize};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use trainyard_eventually::within;

use super::cluster::Cluster;
use super::pods::once;

pub async fn exec(cluster: Cluster) {
    // The end of the container would end the command that asks for it, too.
    let mut spec = once(
        "touch here; until test -e /gone; do sleep 0.05; done
        read asker </gone; while kill -0 $asker 2>/dev/null; do sleep 0.05; done",
    );
    spec["containers"][0]["workingDir"] = json!("/work");
    spec["containers"][0]["env"] = json!([{"name": "WORD", "value": "said"}]);
    spec["initContainers"] = json!([{"name": "before", "image": "test", "command": ["true"]}]);
    cluster.create("pod", spec).await;
    cluster.until_phase("pod", "Running").await;
    // The files, the host name, the variables and the processes of the container, and nobody
    // else's.
    let script =
        "until test -e here; do sleep 0.05; done; cat; echo $WORD; hostname; pwd; echo doubt >&2; exit 3";
    let (code, stdout, stderr) = cluster
        .exec("pod", &["sh", "-c", script], "input ")
        .await
        .unwrap();
    assert_eq!(
        (code, stdout.as_str(), stderr.as_str()),
        (3, "input said\npod\n/work\n", "doubt\n")
    );
    let message = cluster.exec("pod", &["no-such-program"], "").await.unwrap_err();
    let expected = "exec: \"no-such-program\": executable file not found in $PATH: unknown";
    assert!(message.contains(expected), "{message}");
    let script = "echo $$ >/going; mv /going /gone";
    let (code, ..) = cluster.exec("pod", &["sh", "-c", script], "").await.unwrap();
    assert_eq!(code, 0);
    cluster.until_phase("pod", "Succeeded").await;
    let message = cluster.exec("pod", &["true"], "").await.unwrap_err();
    assert!(message.contains("container not found (\"main\")"), "{message}");
}

pub async fn terminal(cluster: Cluster) {
    cluster.create("pod", once("sleep 1000")).await;
    cluster.until_phase("pod", "Running").await;
    let size = "until test \"$(stty size)\" = '33 111'; do sleep 0.05; done; stty size";
    // What is written without an end of the line waits in the terminal; the last is the sign for an
    // end.
    let script =
        format!("{size}; tty; echo $TERM; test -t 2 && echo all; : > /dev/tty && echo own; cat; exit 3");
    let wanted = AttachParams::interactive_tty();
    let attached = cluster.pods().exec("pod", ["sh", "-c", &script], &wanted).await;
    let mut attached = attached.unwrap();
    let mut stdin = attached.stdin().unwrap();
    let mut stdout = attached.stdout().unwrap();
    let mut said = String::new();
    stdin.write_all(b"typed\n\x04").await.unwrap();
    let mut sizes = attached.terminal_size().unwrap();
    let size = TerminalSize {
        width: 111,
        height: 33,
    };
    sizes.send(size).await.unwrap();
    let reading = stdout.read_to_string(&mut said);
    within("the command knows how large its terminal is", reading)
        .await
        .unwrap();
    let lines: Vec<&str> = said.split("\r\n").collect();
    // Terminals show what is typed.
    assert_eq!((lines[0], lines[1]), ("typed", "33 111"), "{said:?}");
    assert!(lines[2].starts_with("/dev/pts/"), "{said:?}");
    assert_eq!(&lines[3..], ["xterm", "all", "own", "typed", ""], "{said:?}");
    let status = attached.take_status().unwrap().await.unwrap();
    assert_eq!(status.reason.as_deref(), Some("NonZeroExitCode"));
    cluster.delete("pod").await;
}

pub async fn events(cluster: Cluster) {
    let told = |event: &Event| {
        let part = event.involved_object.field_path.clone().unwrap_or_default();
        format!("{} {part}", event.reason.clone().unwrap_or_default())
    };
    cluster.create("pod", once("sleep 60")).await;
    let began = cluster.until_events("pod", |events| events.len() == 4).await;
    let main = "spec.containers{main}";
    let mut began: Vec<String> = began.iter().map(told).collect();
    // The scheduler does not wait for what it says, nor does the kubelet.
    began.sort();
    assert_eq!(
        began,
        [
            format!("Created {main}"),
            format!("Pulled {main}"),
            "Scheduled ".to_owned(),
            format!("Started {main}"),
        ]
    );
    cluster.delete("pod").await;
    let all = cluster.until_events("pod", |events| events.len() == 5).await;
    assert_eq!(told(&all[4]), format!("Killing {main}"));

    // What happens again is counted.
    let mut spec = once("exit 1");
    spec["restartPolicy"] = json!("Always");
    cluster.create("restless", spec).await;
    let reason = |reason: &'static str| move |event: &&Event| event.reason.as_deref() == Some(reason);
    let events = cluster
        .until_events("restless", |events| {
            events.iter().any(|event| reason("BackOff")(&event))
        })
        .await;
    let started: Vec<_> = events.iter().filter(reason("Started")).collect();
    assert_eq!((started.len(), started[0].count), (1, Some(2)));
    assert!(started[0].last_timestamp >= started[0].first_timestamp);

    // What goes wrong is said, in the words of the kubelet.
    let mut spec = once("sleep 60");
    spec["containers"][0]["readinessProbe"] = json!({"exec": {"command": ["sh", "-c", "echo no; exit 1"]}});
    spec["containers"][0]["lifecycle"] = json!({"preStop": {"exec": {"command": ["false"]}}});
    cluster.create("unwell", spec).await;
    let mut spec = once("true");
    spec["volumes"] = json!([{"name": "v", "configMap": {"name": "absent"}}]);
    // A volume that no container has is not missed.
    cluster.create("unmounted", spec.clone()).await;
    cluster.until_phase("unmounted", "Succeeded").await;
    spec["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    cluster.create("mounts", spec).await;
    let mut spec = once("sleep 60");
    spec["containers"][0]["lifecycle"] = json!({"postStart": {"exec": {"command": ["false"]}}});
    cluster.create("hook", spec).await;
    let mut spec = once("true");
    spec["nodeSelector"] = json!({"is": "nowhere"});
    cluster.create("placed", spec).await;
    for (pod, reason, words) in [
        ("unwell", "Unhealthy", "Readiness probe failed: no\n"),
        (
            "mounts",
            "FailedMount",
            "MountVolume.SetUp failed for volume \"v\" : configmap \"absent\" not found",
        ),
        ("hook", "FailedPostStartHook", "PostStartHook failed"),
        ("placed", "FailedScheduling", "0/2 nodes are available"),
    ] {
        let is = |event: &Event| {
            event.reason.as_deref() == Some(reason)
                && event
                    .message
                    .as_deref()
                    .is_some_and(|message| message.starts_with(words))
        };
        let events = cluster.until_events(pod, |events| events.iter().any(is)).await;
        assert!(
            events
                .iter()
                .filter(|event| is(event))
                .all(|event| event.type_.as_deref() == Some("Warning"))
        );
    }
    cluster.delete("unwell").await;
    cluster
        .until_events("unwell", |events| {
            events.iter().any(|event| reason("FailedPreStopHook")(&event))
        })
        .await;
}

pub async fn token(cluster: Cluster) {
    let mut spec = once(
        "stat -Lc %a /v/mine /v/yours; cat /v/mine; echo; cat /v/yours; echo; cd /var/run/secrets/kubernetes.io; \
         cat serviceaccount/token; echo; cat serviceaccount/namespace; echo; head -1 serviceaccount/ca.crt",
    );
    spec["volumes"] = json!([{"name": "v", "projected": {"sources": [
        {"serviceAccountToken": {"path": "mine"}},
        {"serviceAccountToken": {"path": "yours", "audience": "yours", "expirationSeconds": 600}},
    ]}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    let pod = cluster.create("pod", spec).await;
    cluster.until_phase("pod", "Succeeded").await;
    let log = cluster.log("pod").await;
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(&lines[..2], ["644", "644"]);
    let claims = |token: &str| -> serde_json::Value {
        let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
        serde_json::from_slice(&claims).unwrap()
    };
    let (mine, yours) = (claims(lines[2]), claims(lines[3]));
    assert_eq!(mine["kubernetes.io"]["pod"]["uid"], json!(pod.metadata.uid));
    assert_eq!(
        mine["kubernetes.io"]["node"]["name"].as_str().map(str::is_empty),
        Some(false)
    );
    assert_eq!(&lines[5..], ["default", "-----BEGIN CERTIFICATE-----"]);
    assert_eq!(claims(lines[4])["aud"], mine["aud"]);
    assert_eq!(yours["aud"], json!(["yours"]));
    assert_eq!(
        yours["exp"].as_i64().unwrap() - yours["iat"].as_i64().unwrap(),
        600
    );
}

pub async fn services(cluster: Cluster) {
    let services = kube::Api::<Service>::default_namespaced(cluster.client.clone());
    for name in ["web", "kubernetes"] {
        let service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
        let service = serde_json::from_value(service).unwrap();
        services.create(&PostParams::default(), &service).await.unwrap();
    }
    let told = "echo ${WEB_SERVICE_PORT-none} ${KUBERNETES_SERVICE_PORT-none}";
    cluster.create("told", once(told)).await;
    let mut without_links = once(told);
    without_links["enableServiceLinks"] = json!(false);
    cluster.create("untold", without_links).await;
    for (pod, wanted) in [("told", "80 80\n"), ("untold", "none 80\n")] {
        cluster.until_phase(pod, "Succeeded").await;
        assert_eq!(cluster.log(pod).await, wanted, "{pod}");
    }
}

pub async fn processes(cluster: Cluster) {
    // In brackets, so that who looks for a mark does not find itself.
    let script = "until p=$(grep -ls '[m]ark-of-the-other' /proc/[0-9]*/cmdline | head -n 1) && test -n \"$p\"; \
                  do sleep 0.05; done; kill -TERM $(echo $p | cut -d / -f 3); \
                  while grep -qs '[m]ark-of-its-child' /proc/[0-9]*/cmdline; do sleep 0.05; done; echo alone";
    let other = ": mark-of-the-other; sh -c ': mark-of-its-child; sleep 1000; true'; true";
    let mut spec = once(script);
    spec["shareProcessNamespace"] = json!(true);
    let other = json!({"name": "other", "image": "test", "command": ["sh", "-c", other]});
    spec["containers"].as_array_mut().unwrap().push(other);
    cluster.create("pod", spec).await;
    // Not process 1 of anything, it ends when it is asked to.
    let pod = cluster.until_phase("pod", "Failed").await;
    let statuses = pod.status.unwrap().container_statuses.unwrap();
    let codes = statuses.iter().map(|status| {
        let ended = status.state.as_ref().and_then(|state| state.terminated.as_ref());
        (status.name.as_str(), ended.map(|ended| ended.exit_code))
    });
    assert_eq!(
        codes.collect::<Vec<_>>(),
        [("main", Some(0)), ("other", Some(143))]
    );
    assert_eq!(cluster.log("pod").await, "alone\n");
}
