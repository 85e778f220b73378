//! A small cluster, in a yard.

use std::path::PathBuf;
use std::process::ExitCode;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use kube::api::{AttachParams, DeleteParams, ListParams, LogParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use trainyard_eventually::within;
use trainyard_local::api::Api;
use trainyard_local::env::Environment;
use trainyard_local::node::runtime::Runtime;
use trainyard_local::node::runtime::state::StateDirectory;
use trainyard_local::node::{Machine, Node, NodeOptions};
use trainyard_local::yard::{self, Entered, YardOptions};

/// Names the directory in which state is kept.
pub const STATE: &str = "TEST_STATE";

pub fn main(name: &str) -> ExitCode {
    let state = PathBuf::from(std::env::var_os(STATE).unwrap());
    let yard = match yard::enter(YardOptions::default(), &state).unwrap() {
        Entered::Over(code) => return code,
        Entered::Inside(yard) => yard,
    };
    let directory = StateDirectory::claim(&state).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let environment = Environment::system();
        let api = Api::new(environment.clone());
        let client = api.client("default");
        let pods = Runtime::new(&yard, &directory.path().join("pods")).await.unwrap();
        let machine = |name: &str| Machine {
            name: name.to_owned(),
            ..Machine::default()
        };
        let options = NodeOptions {
            machines: vec![machine("one"), machine("two")],
            state_directory: directory.path().to_owned(),
            claims_directory: state.join("claims"),
            working_directory: std::env::current_dir().unwrap(),
            host_paths: None,
            image_user: None,
            images: std::collections::BTreeMap::new(),
            progress: None,
            keep: None,
            environment,
        };
        let node = Node::start(client.clone(), pods, options).await.unwrap();
        for name in node.names() {
            api.attach_node(name, node.access());
        }
        let (_, test) = super::pods::ALL.iter().find(|(known, _)| *known == name).unwrap();
        test(Cluster { client }).await;
        node.stop().await;
    });
    ExitCode::SUCCESS
}

pub struct Cluster {
    pub client: Client,
}

impl Cluster {
    pub fn pods(&self) -> kube::Api<Pod> {
        kube::Api::default_namespaced(self.client.clone())
    }

    pub async fn config_map(&self, name: &str, data: serde_json::Value) {
        let map = serde_json::json!({"metadata": {"name": name}, "data": data});
        let api = kube::Api::<ConfigMap>::default_namespaced(self.client.clone());
        api.create(&PostParams::default(), &serde_json::from_value(map).unwrap())
            .await
            .unwrap();
    }

    /// Makes a pod of a spec.
    pub async fn create(&self, name: &str, spec: serde_json::Value) -> Pod {
        let pod = serde_json::json!({"metadata": {"name": name, "labels": {"app": "test", "name": name}}, "spec": spec});
        self.pods()
            .create(&PostParams::default(), &serde_json::from_value(pod).unwrap())
            .await
            .unwrap()
    }

    /// Waits until a pod is as wanted.
    pub async fn until(&self, name: &str, wanted: impl Fn(&Pod) -> bool) -> Pod {
        let mut last = self.pods().get(name).await.unwrap();
        let version = last.resource_version().unwrap();
        let parameters = WatchParams::default().fields(&format!("metadata.name={name}"));
        let mut events = self.pods().watch(&parameters, &version).await.unwrap().boxed();
        while !wanted(&last) {
            let what = format!("{name} changes again: {:#?}", last.status);
            match within(&what, events.try_next()).await.unwrap() {
                Some(WatchEvent::Added(pod) | WatchEvent::Modified(pod) | WatchEvent::Deleted(pod)) => {
                    last = pod;
                }
                Some(_) => {}
                None => panic!("the watch ended"),
            }
        }
        last
    }

    /// Waits until the events about a pod, in the order in which they came, are as wanted.
    pub async fn until_events(&self, pod: &str, wanted: impl Fn(&[Event]) -> bool) -> Vec<Event> {
        let api = kube::Api::<Event>::default_namespaced(self.client.clone());
        let about = format!("involvedObject.name={pod}");
        // From the beginning, so that those of the past come first.
        let parameters = WatchParams::default().fields(&about);
        let mut changes = api.watch(&parameters, "0").await.unwrap().boxed();
        loop {
            let mut events = api
                .list(&ListParams::default().fields(&about))
                .await
                .unwrap()
                .items;
            events.sort_by_key(|event| event.metadata.name.clone());
            if wanted(&events) {
                return events;
            }
            let what = format!("another event: {events:#?}");
            within(&what, changes.try_next()).await.unwrap();
        }
    }

    pub async fn until_phase(&self, name: &str, phase: &str) -> Pod {
        self.until(name, |pod| {
            pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some(phase)
        })
        .await
    }

    pub async fn log(&self, name: &str) -> String {
        let parameters = LogParams {
            container: Some("main".to_owned()),
            ..LogParams::default()
        };
        self.pods().logs(name, &parameters).await.unwrap()
    }

    /// Runs a command in a pod. Its exit code and its outputs, or why it could not be run.
    pub async fn exec(
        &self,
        name: &str,
        command: &[&str],
        input: &str,
    ) -> Result<(i32, String, String), String> {
        let parameters = AttachParams::default().stdin(true);
        let attached = self.pods().exec(name, command.iter().copied(), &parameters).await;
        let mut attached = attached.map_err(|error| error.to_string())?;
        let mut stdin = attached.stdin().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        stdin.shutdown().await.unwrap();
        drop(stdin);
        let (mut said, mut doubted) = (String::new(), String::new());
        let (mut stdout, mut stderr) = (attached.stdout().unwrap(), attached.stderr().unwrap());
        let (first, second, status) = tokio::join!(
            stdout.read_to_string(&mut said),
            stderr.read_to_string(&mut doubted),
            attached.take_status().unwrap(),
        );
        first.and(second).unwrap();
        let status = status.unwrap();
        if status.status.as_deref() == Some("Success") {
            return Ok((0, said, doubted));
        }
        let causes = status
            .details
            .and_then(|details| details.causes)
            .unwrap_or_default();
        let code = causes
            .iter()
            .find(|cause| cause.reason.as_deref() == Some("ExitCode"));
        match code.and_then(|code| code.message.as_deref()?.parse().ok()) {
            Some(code) => Ok((code, said, doubted)),
            None => Err(status.message.unwrap_or_default()),
        }
    }

    /// Deletes a pod and waits until it is gone.
    pub async fn delete(&self, name: &str) {
        let pod = self.pods().get(name).await.unwrap();
        self.pods().delete(name, &DeleteParams::default()).await.unwrap();
        let gone = async {
            let parameters = WatchParams::default().fields(&format!("metadata.name={name}"));
            let version = pod.resource_version().unwrap();
            let mut events = self.pods().watch(&parameters, &version).await.unwrap().boxed();
            while let Some(event) = events.try_next().await.unwrap() {
                if matches!(event, WatchEvent::Deleted(_)) {
                    return;
                }
            }
        };
        within(&format!("{name} is gone"), gone).await;
    }
}
