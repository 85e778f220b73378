//! `batch.test.bdap.com/v1` MPIJob, of MPI-Operator: a launcher, and workers that it reaches
//! through the exec API.

mod definition;
mod status;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trainyard_api::{
    Dialect, FieldError, FrameworkSpec, LauncherOptions, MpiAttach, RoleSpec, RunPolicy, TrainingJob,
    TrainingJobSpec, UpdatePolicy,
};

use crate::mpi::{self, LAUNCHER, Otherwise, WORKER};
use crate::{Converted, Extras, Kind, Purpose, conditions, read, templates};

const LAUNCHER_TEMPLATE: &str = "spec.launcherTemplate";
const WORKER_TEMPLATE: &str = "spec.workerTemplate";
const NUM_WORKERS: &str = "spec.numWorkers";

/// What is different for every job that is converted.
const OF_EVERY_JOB: [&str; 2] = [
    "spec: processes are started in workers through the operator's agent and not through the exec API: nobody needs a right to \
     pods/exec, and the launcher has the service account of its template",
    "spec: the launcher's pod is named with an index, <job>-launcher-0; workers that still run are deleted when it has ended; \
     changes of workers, and of their number, are carried out while the job runs",
];

pub const KIND: Kind = Kind {
    group: "batch.test.bdap.com",
    version: "v1",
    name: "MPIJob",
    plural: "mpijobs",
    flag: "bdap-mpi",
    dialect: Dialect::BdapMpi,
    translate,
    paths: &[
        ("spec.roles[0].template", LAUNCHER_TEMPLATE),
        (
            "spec.roles[0].restartPolicy",
            "spec.launcherTemplate.spec.restartPolicy",
        ),
        ("spec.roles[0]", LAUNCHER_TEMPLATE),
        ("spec.roles[1].template", WORKER_TEMPLATE),
        (
            "spec.roles[1].restartPolicy",
            "spec.workerTemplate.spec.restartPolicy",
        ),
        ("spec.roles[1].replicas", NUM_WORKERS),
        ("spec.roles[1]", WORKER_TEMPLATE),
        ("spec.roles", NUM_WORKERS),
    ],
    status: status::status,
    event: conditions::event,
    definition: definition::definition,
    extras: Extras::NONE,
};

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    num_workers: Option<i32>,
    launcher_template: Option<PodTemplateSpec>,
    worker_template: Option<PodTemplateSpec>,
}

fn translate(
    object: &Value,
    purpose: Purpose,
    errors: &mut Vec<FieldError>,
) -> Result<Converted, Vec<FieldError>> {
    let read::Object {
        metadata,
        spec,
        mut notes,
    } = read::object::<Spec>(object, purpose)?;
    let (num_workers, mut launcher, mut worker) = given(spec)?;
    let mut restarts = |template: &mut PodTemplateSpec, at: &str| {
        let policy = templates::restart_policy(template, at, &mut notes);
        policy.map_err(|error| errors.push(error)).ok()
    };
    let launcher_restarts = restarts(&mut launcher, LAUNCHER_TEMPLATE);
    let worker_restarts = restarts(&mut worker, WORKER_TEMPLATE);
    templates::strip(&mut launcher, LAUNCHER_TEMPLATE, &mut notes);
    templates::strip(&mut worker, WORKER_TEMPLATE, &mut notes);
    mpi::worker(&mut worker, WORKER_TEMPLATE, Otherwise::Image, &mut notes);
    if purpose == Purpose::Replace {
        notes.extend(OF_EVERY_JOB.map(str::to_owned));
    }
    let role = |name: &str, replicas, template, restart_policy| RoleSpec {
        name: name.to_owned(),
        replicas: Some(replicas),
        template,
        restart_policy,
        ..RoleSpec::default()
    };
    let job = TrainingJob {
        metadata,
        spec: TrainingJobSpec {
            framework: FrameworkSpec {
                name: "mpi".to_owned(),
                mpi: Some(LauncherOptions {
                    // Its list of hosts says so, whatever the workers ask for.
                    slots_per_worker: Some(1),
                    attach: Some(MpiAttach::Agent),
                    ..LauncherOptions::default()
                }),
                ..FrameworkSpec::default()
            },
            roles: vec![
                role(LAUNCHER, 1, launcher, launcher_restarts),
                role(WORKER, num_workers, worker, worker_restarts),
            ],
            run_policy: Some(RunPolicy {
                // Its users change workers, and their number, while a job runs.
                update_policy: Some(UpdatePolicy::Roll),
                ..RunPolicy::default()
            }),
            ..TrainingJobSpec::default()
        },
        status: None,
    };
    Ok(Converted { job, notes })
}

/// All that must be there; what is not is said at once.
fn given(spec: Spec) -> Result<(i32, PodTemplateSpec, PodTemplateSpec), Vec<FieldError>> {
    match (spec.num_workers, spec.launcher_template, spec.worker_template) {
        (Some(workers), Some(launcher), Some(worker)) => Ok((workers, launcher, worker)),
        (workers, launcher, worker) => {
            let there = [
                (NUM_WORKERS, workers.is_some()),
                (LAUNCHER_TEMPLATE, launcher.is_some()),
                (WORKER_TEMPLATE, worker.is_some()),
            ];
            let missing = there.into_iter().filter(|(_, there)| !there);
            Err(missing.map(|(path, _)| templates::missing(path)).collect())
        }
    }
}
