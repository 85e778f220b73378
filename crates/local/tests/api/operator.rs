//! The operator, as it is, against the API in process.

use std::sync::Arc;

use clap::{Args, FromArgMatches};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use trainyard_api::{JobPhase, RootCause, TrainingJob};
use trainyard_eventually::within;
use trainyard_operator::Options;
use trainyard_operator::metrics::Metrics;

use crate::support::{create, from, server_with_jobs};

/// Runs the operator until dropped.
struct Operator {
    shutdown: CancellationToken,
    metrics: Arc<Metrics>,
    task: tokio::task::JoinHandle<()>,
}

impl Operator {
    fn start(client: Client, arguments: &[&str]) -> Self {
        let command = Options::augment_args(clap::Command::new("operator"));
        let arguments = ["operator", "--http-address=127.0.0.1:0"].iter().chain(arguments);
        let matches = command.try_get_matches_from(arguments).unwrap();
        let options = Options::from_arg_matches(&matches).unwrap();
        let shutdown = CancellationToken::new();
        let metrics = Arc::new(Metrics::new());
        let (token, of_run) = (shutdown.clone(), metrics.clone());
        let task = tokio::spawn(async move {
            trainyard_operator::run(client, options, &[], of_run, token)
                .await
                .unwrap();
        });
        Self {
            shutdown,
            metrics,
            task,
        }
    }

    /// How often the watches of jobs and of pods had to begin anew.
    fn restarts_of_watches(&self) -> (u64, u64) {
        let text = self.metrics.render();
        let of = |kind: &str| {
            let name = format!("trainyard_watch_restarts_total{{kind=\"{kind}\"}} ");
            let count = text.lines().find_map(|line| line.strip_prefix(&name));
            count.map_or(0, |count| count.parse().unwrap())
        };
        (of("TrainingJob"), of("Pod"))
    }

    async fn stop(self) {
        self.shutdown.cancel();
        within("the end of the operator", self.task).await.unwrap();
    }
}

fn job(name: &str, workers: u32) -> TrainingJob {
    from(json!({
        "apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
        "spec": {
            "framework": {"name": "pytorch"},
            "roles": [{"name": "worker", "replicas": workers, "template": {"spec": {
                "containers": [{"name": "train", "image": "example/mnist:1", "command": ["train"]}],
            }}}],
        },
    }))
}

fn phase(job: &TrainingJob) -> Option<JobPhase> {
    job.status.as_ref()?.phase
}

/// Waits until what is watched is as wanted.
async fn wait_for<K>(api: &Api<K>, what: &str, mut wanted: impl FnMut(&K) -> bool) -> K
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    within(what, async {
        let mut events = api.watch(&WatchParams::default(), "0").await.unwrap().boxed();
        loop {
            match events.try_next().await.unwrap() {
                Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) if wanted(&object) => {
                    return object;
                }
                Some(WatchEvent::Error(status)) => panic!("{status}"),
                Some(_) => {}
                None => panic!("the watch ended"),
            }
        }
    })
    .await
}

/// Plays the node: a pod is in a phase.
async fn set_phase(pods: &Api<Pod>, pod: &str, phase: &str, state: Value) {
    let ready = if phase == "Running" { "True" } else { "False" };
    let status = json!({"status": {
        "phase": phase,
        "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": ready}],
        "containerStatuses": [{
            "name": "train", "image": "example/mnist:1", "imageID": "", "ready": phase == "Running", "restartCount": 0,
            "state": state,
        }],
    }});
    pods.patch_status(pod, &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_job_is_created_runs_succeeds_and_is_cleaned_up() {
    let server = server_with_jobs().await;
    let client = server.client("default");
    let operator = Operator::start(
        client.clone(),
        &["--watch-namespace", "default", "--leader-elect"],
    );
    let jobs: Api<TrainingJob> = Api::default_namespaced(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    jobs.create(&kube::api::PostParams::default(), &job("mnist", 2))
        .await
        .unwrap();

    let names = ["mnist-worker-0", "mnist-worker-1"];
    for name in names {
        let pod = wait_for(&pods, "a pod", |pod| pod.name_any() == name).await;
        assert_eq!(pod.spec.unwrap().restart_policy.as_deref(), Some("Never"));
        assert_eq!(pod.metadata.owner_references.unwrap()[0].kind, "TrainingJob");
    }
    let services: Api<Service> = Api::default_namespaced(client.clone());
    let service = services
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .remove(0);
    assert_eq!(service.spec.unwrap().cluster_ip.as_deref(), Some("None"));

    for name in names {
        set_phase(
            &pods,
            name,
            "Running",
            json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}}),
        )
        .await;
    }
    wait_for(&jobs, "Running", |job| phase(job) == Some(JobPhase::Running)).await;
    for name in names {
        let ended = json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
        set_phase(&pods, name, "Succeeded", ended).await;
    }
    let done = wait_for(&jobs, "Succeeded", |job| phase(job) == Some(JobPhase::Succeeded)).await;
    assert_eq!(done.status.unwrap().observed_generation, done.metadata.generation);

    let events: Api<Event> = Api::default_namespaced(client.clone());
    let about = ListParams::default().fields("involvedObject.name=mnist");
    within("an event", async {
        while events.list(&about).await.unwrap().items.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;

    jobs.delete("mnist", &DeleteParams::background()).await.unwrap();
    assert!(
        pods.list(&ListParams::default()).await.unwrap().items.is_empty(),
        "pods go with their job"
    );
    assert!(
        services
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
    operator.stop().await;
}

#[tokio::test]
async fn a_pod_that_fails_is_the_root_cause() {
    let server = server_with_jobs().await;
    let client = server.client("default");
    let operator = Operator::start(client.clone(), &[]);
    let jobs: Api<TrainingJob> = Api::default_namespaced(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let mut wanted = job("broken", 1);
    wanted.spec.run_policy = from(json!({"backoffLimit": 0}));
    jobs.create(&kube::api::PostParams::default(), &wanted)
        .await
        .unwrap();
    wait_for(&pods, "a pod", |pod| pod.name_any() == "broken-worker-0").await;
    let ended = json!({"terminated": {
        "exitCode": 3, "reason": "Error", "message": "no data", "finishedAt": "2026-01-01T00:00:05Z",
    }});
    set_phase(&pods, "broken-worker-0", "Failed", ended).await;
    let job = wait_for(&jobs, "Failed", |job| phase(job) == Some(JobPhase::Failed)).await;
    let expected = RootCause {
        role: "worker".to_owned(),
        pod: "broken-worker-0".to_owned(),
        node: None,
        container: Some("train".to_owned()),
        exit_code: Some(3),
        signal: None,
        reason: Some("Error".to_owned()),
        message: Some("no data".to_owned()),
        time: Some(from(json!("2026-01-01T00:00:05Z"))),
    };
    assert_eq!(job.status.unwrap().root_cause, Some(expected));
    operator.stop().await;
}

#[tokio::test]
async fn a_watch_that_is_cut_off_is_begun_anew() {
    let server = server_with_jobs().await;
    let client = server.client("default");
    let operator = Operator::start(client.clone(), &[]);
    let jobs: Api<TrainingJob> = Api::default_namespaced(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let configs: Api<ConfigMap> = Api::default_namespaced(client);
    create(&jobs, serde_json::to_value(job("listed", 1)).unwrap()).await;
    wait_for(&pods, "a pod", |pod| pod.name_any() == "listed-worker-0").await;
    // Everything has been listed by now: this one is known from the watch alone.
    create(&jobs, serde_json::to_value(job("watched", 1)).unwrap()).await;
    wait_for(&pods, "a pod", |pod| pod.name_any() == "watched-worker-0").await;
    assert_eq!(
        operator.restarts_of_watches(),
        (0, 0),
        "the watches of the beginning"
    );

    // A watch is cut off when it has to tell something and has not read as far as the server has
    // forgotten, as after the change of something else. It may happen to read that far before the
    // server forgets: then once more.
    within("the end of both watches", async {
        for round in 0.. {
            create(&configs, json!({"metadata": {"name": format!("other-{round}")}})).await;
            server.compact();
            let touch = Patch::Merge(json!({"metadata": {"annotations": {"round": round.to_string()}}}));
            let params = PatchParams::default();
            jobs.patch("watched", &params, &touch).await.unwrap();
            pods.patch("watched-worker-0", &params, &touch).await.unwrap();
            for _ in 0..100 {
                if matches!(operator.restarts_of_watches(), (1.., 1..)) {
                    return;
                }
                tokio::task::yield_now().await;
            }
        }
    })
    .await;

    // Both kinds are still followed: jobs to make pods, and pods to see how they end.
    create(&jobs, serde_json::to_value(job("after", 1)).unwrap()).await;
    wait_for(&pods, "a pod of the job after", |pod| {
        pod.name_any() == "after-worker-0"
    })
    .await;
    let ended = json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
    set_phase(&pods, "after-worker-0", "Succeeded", ended).await;
    wait_for(&jobs, "the success of the job after", |job| {
        job.name_any() == "after" && phase(job) == Some(JobPhase::Succeeded)
    })
    .await;
    operator.stop().await;
}

#[tokio::test]
async fn more_jobs_than_a_page_are_all_found_without_any_history() {
    let server = server_with_jobs().await;
    let client = server.client("default");
    let jobs: Api<TrainingJob> = Api::default_namespaced(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    for number in 0..600 {
        create(
            &jobs,
            serde_json::to_value(job(&format!("job-{number}"), 1)).unwrap(),
        )
        .await;
    }
    // What was there before can't be told by a watch.
    server.compact();
    let operator = Operator::start(client.clone(), &[]);
    within("all pods", async {
        while pods.list(&ListParams::default()).await.unwrap().items.len() < 600 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    operator.stop().await;
}
