//! What containers tell an agent of the last release: the commands and variables that were recorded
//! in the contract's tests.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Container;
use rstest::rstest;
use serde::{Deserialize, Serialize};
use trainyard_api::{ProgressPolicy, TrainingJob};
use trainyard_core::build;
use trainyard_core::job::Job;
use trainyard_core::model::PodKey;

use crate::jobs::{Change, mpi, with_agent};

/// What is said to the agent in one container.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct AgentInput {
    command: Vec<String>,
    env: BTreeMap<String, String>,
}

impl AgentInput {
    fn of(container: Container) -> Self {
        let env = container.env.into_iter().flatten();
        Self {
            command: container.command.unwrap_or_default(),
            env: env
                .filter(|variable| variable.name.starts_with("TRAINYARD_"))
                .map(|variable| (variable.name, variable.value.unwrap_or_default()))
                .collect(),
        }
    }
}

/// The containers of the first pod of each role.
fn containers(mut job: TrainingJob) -> BTreeMap<String, AgentInput> {
    job.metadata.namespace = Some("ns".to_owned());
    job.metadata.name = Some("a".to_owned());
    let job = Job::parse(&job).unwrap();
    let mut told = BTreeMap::new();
    for (role, name) in ["launcher", "worker"].into_iter().enumerate() {
        let pod = build::pod(&job, &with_agent(), PodKey { role, index: 0 }).unwrap();
        let spec = pod.spec.unwrap();
        let all = spec.init_containers.into_iter().flatten().chain(spec.containers);
        told.extend(all.map(|one| (format!("{name}/{}", one.name), AgentInput::of(one))));
    }
    told
}

const HOST_FILES: &str = "slotsPerWorker: 2, launcherAsWorker: true, hostFiles: [{path: /job/deepspeed, format: DeepSpeed}, \
     {path: /job/mpich, format: MPICH}, {path: /job/intel, format: Intel}, {path: /job/hosts, format: Hosts}]";

fn deepspeed() -> TrainingJob {
    let job = mpi("", 2).spec(|spec| spec.framework = serde_saphyr::from_str("{name: deepspeed}").unwrap());
    // The agent runs it, and serves beside it.
    job.role("worker", |role| {
        let pod = role.template.spec.as_mut().unwrap();
        pod.containers[0].command = Some(vec!["sleep".to_owned(), "infinity".to_owned()]);
    })
}

/// A variable that is new is no harm to an agent that does not know it. Everything else is as it
/// was.
#[rstest]
#[case::agent("agent", mpi(HOST_FILES, 2).rolls().spec(|spec| spec.progress = Some(ProgressPolicy::Report)))]
#[case::exec("exec", mpi("attach: Exec", 2))]
#[case::ssh("ssh", mpi("attach: Ssh", 2))]
#[case::deepspeed("deepspeed", deepspeed())]
fn an_agent_of_version_1_is_told_what_it_knows(#[case] name: &str, #[case] job: TrainingJob) {
    let recorded = include_str!("../../../contract/tests/v1/containers.json");
    let mut recorded: BTreeMap<String, BTreeMap<String, AgentInput>> =
        serde_json::from_str(recorded).unwrap();
    let recorded = recorded.remove(name).unwrap_or_default();
    let mut today = containers(job);
    for (container, told) in &mut today {
        let known = recorded.get(container).map(|told| &told.env);
        told.env
            .retain(|name, _| known.is_some_and(|known| known.contains_key(name)));
    }
    assert_eq!(today, recorded);
}
