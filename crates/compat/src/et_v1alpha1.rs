//! `kai.alibabacloud.com/v1alpha1` of et-operator: a TrainingJob, of a launcher that calls
//! horovodrun and of workers that come and go, and the requests ScaleIn and ScaleOut.
//!
//! Its launcher reaches workers over SSH or through the exec API, as `launcherAttachMode` says.
//! Here both are the agent: only the agent knows when nothing runs any more in a worker that
//! leaves. Where it is SSH, the agent is the launcher's `ssh`, too.

mod definition;
pub mod requests;
mod status;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trainyard_api::{
    CleanPodPolicy, CreatePolicy, Dialect, Elastic, FieldError, FrameworkSpec, HorovodController, HostFile,
    HostFileFormat, LauncherOptions, Refill, RemoteShellName, RestartPolicy, RestartScope, RoleSpec,
    RunPolicy, TrainingJob, TrainingJobSpec,
};

use crate::mpi::{self, LAUNCHER, Otherwise, WORKER};
use crate::{Converted, Extras, Kind, Purpose, read, templates};

const GROUP: &str = "kai.alibabacloud.com";
const VERSION: &str = "v1alpha1";
const FLAG: &str = "et";

const ROLES: &str = "spec.etReplicaSpecs";
const LAUNCHER_AT: &str = "spec.etReplicaSpecs.launcher";
const WORKER_AT: &str = "spec.etReplicaSpecs.worker";

/// The annotation that suspends a job while it is `true`.
const SUSPEND: &str = "job-supervisor.kube-ai.io/job-suspended";
/// How often a job is restarted that does not say it.
const BACKOFF_LIMIT: i32 = 6;
/// The lists of hosts that launchers find there. Beside each is the program that horovodrun calls.
const HOST_FILES: [(&str, HostFileFormat); 2] = [
    ("/etc/edl/hostfile", HostFileFormat::MPICH),
    ("/job/hostfile", HostFileFormat::DeepSpeed),
];

/// What is different for every job that is converted.
const OF_EVERY_JOB: [&str; 2] = [
    "spec: processes are started in workers through the operator's agent, also those of `ssh` and `pdsh`, and neither over SSH nor \
     through the exec API: images need no SSH server and no keys, and nobody needs a right to pods/exec",
    "spec: the launcher's pod is named with an index, <job>-launcher-0; requests are ScaleIn and ScaleOut of trainyard.dev",
];

pub const KIND: Kind = Kind {
    group: GROUP,
    version: VERSION,
    name: "TrainingJob",
    plural: "trainingjobs",
    flag: FLAG,
    dialect: Dialect::Et,
    translate,
    paths: &[
        ("spec.roles[0].restartPolicy", "spec.restartPolicy"),
        ("spec.roles[0]", LAUNCHER_AT),
        ("spec.roles[1]", WORKER_AT),
        ("spec.roles", ROLES),
        ("spec.elastic", WORKER_AT),
        ("spec.framework.horovod", "spec"),
        ("spec.framework", "spec"),
        ("spec.runPolicy", "spec"),
    ],
    status: status::status,
    event: status::event,
    definition: definition::definition,
    extras: Extras {
        component: "trainingjob",
        suspend: Some("the annotation job-supervisor.kube-ai.io/job-suspended"),
        suspend_annotation: Some(SUSPEND),
        ..Extras::NONE
    },
};

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    clean_pod_policy: Option<CleanPodPolicy>,
    et_replica_specs: Option<Roles>,
    launcher_attach_mode: Option<AttachMode>,
    slots_per_worker: Option<i32>,
    restart_policy: Option<JobRestartPolicy>,
    backoff_limit: Option<i32>,
}

#[derive(Deserialize, Serialize)]
struct Roles {
    launcher: Option<Launcher>,
    worker: Option<Worker>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Launcher {
    replicas: Option<i32>,
    template: Option<PodTemplateSpec>,
    restart_policy: Option<RestartPolicy>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Worker {
    replicas: Option<i32>,
    min_replicas: Option<i32>,
    max_replicas: Option<i32>,
    template: Option<PodTemplateSpec>,
    restart_policy: Option<RestartPolicy>,
}

#[derive(Clone, Copy, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum AttachMode {
    #[default]
    Ssh,
    Kubexec,
}

/// What happens to the whole job when its launcher has failed.
#[derive(Clone, Copy, Default, Deserialize, Serialize)]
enum JobRestartPolicy {
    #[default]
    Never,
    OnFailure,
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
    let (launcher, worker) = given(spec.et_replica_specs)?;
    let elastic = elastic(&worker);
    let restarts = spec.restart_policy.unwrap_or_default();
    let launcher = self::launcher(launcher, restarts, &mut notes, errors);
    let worker = self::worker(worker, &mut notes, errors);
    let (Some(launcher), Some(worker)) = (launcher, worker) else {
        return Err(Vec::new());
    };
    if purpose == Purpose::Replace {
        notes.extend(OF_EVERY_JOB.map(str::to_owned));
    }
    let job = TrainingJob {
        metadata,
        spec: TrainingJobSpec {
            framework: FrameworkSpec {
                name: "horovod".to_owned(),
                horovod: Some(options(
                    spec.slots_per_worker,
                    spec.launcher_attach_mode.unwrap_or_default(),
                )),
                ..FrameworkSpec::default()
            },
            elastic: Some(elastic),
            roles: vec![launcher, worker],
            run_policy: Some(RunPolicy {
                clean_pod_policy: spec.clean_pod_policy,
                backoff_limit: Some(spec.backoff_limit.unwrap_or(BACKOFF_LIMIT)),
                ..RunPolicy::default()
            }),
            ..TrainingJobSpec::default()
        },
        status: None,
    };
    Ok(Converted { job, notes })
}

/// Both roles, which must be there.
fn given(roles: Option<Roles>) -> Result<(Launcher, Worker), Vec<FieldError>> {
    let Some(roles) = roles else {
        return Err(vec![templates::missing(ROLES)]);
    };
    match (roles.launcher, roles.worker) {
        (Some(launcher), Some(worker)) => Ok((launcher, worker)),
        (launcher, worker) => {
            let there = [(LAUNCHER_AT, launcher.is_some()), (WORKER_AT, worker.is_some())];
            let missing = there.into_iter().filter(|(_, there)| !there);
            Err(missing.map(|(at, _)| templates::missing(at)).collect())
        }
    }
}

/// The bounds of the workers, which et-operator did not look at.
fn elastic(worker: &Worker) -> Elastic {
    let is_never = worker.restart_policy == Some(RestartPolicy::Never);
    Elastic {
        role: Some(WORKER.to_owned()),
        replicas: worker.replicas.unwrap_or(1),
        min_replicas: worker.min_replicas,
        max_replicas: worker.max_replicas,
        refill: is_never.then_some(Refill::Never),
        ..Elastic::default()
    }
}

fn options(slots_per_worker: Option<i32>, attach: AttachMode) -> LauncherOptions {
    let file = |(path, format): (&str, HostFileFormat)| HostFile {
        path: path.to_owned(),
        format,
    };
    LauncherOptions {
        // With MPI the number of processes can't change.
        controller: Some(HorovodController::Gloo),
        slots_per_worker,
        host_files: Some(HOST_FILES.map(file).into()),
        remote_shells: match attach {
            // What launchers call by these names there, when they do not call horovodrun.
            AttachMode::Ssh => Some(vec![RemoteShellName::Ssh, RemoteShellName::Pdsh]),
            AttachMode::Kubexec => None,
        },
        ..LauncherOptions::default()
    }
}

fn launcher(
    given: Launcher,
    restarts: JobRestartPolicy,
    notes: &mut Vec<String>,
    errors: &mut Vec<FieldError>,
) -> Option<RoleSpec> {
    if let Some(count) = given.replicas.filter(|count| *count != 1) {
        let message = format!("{count} launchers: there is exactly one, so give 1, or leave it out");
        errors.push(FieldError::new(format!("{LAUNCHER_AT}.replicas"), message));
    }
    if given.restart_policy.is_some() {
        notes.push(format!(
            "{LAUNCHER_AT}.restartPolicy: spec.restartPolicy decides what becomes of a launcher that has failed; left out"
        ));
    }
    Some(RoleSpec {
        name: LAUNCHER.to_owned(),
        replicas: Some(1),
        template: templates::given(given.template, &format!("{LAUNCHER_AT}.template"), notes, errors)?,
        restart_policy: Some(match restarts {
            JobRestartPolicy::Never => RestartPolicy::Never,
            JobRestartPolicy::OnFailure => RestartPolicy::OnFailure,
        }),
        // All pods are made anew with the launcher: a worker may be what it failed because of.
        restart_scope: match restarts {
            JobRestartPolicy::Never => None,
            JobRestartPolicy::OnFailure => Some(RestartScope::Job),
        },
        create_policy: Some(CreatePolicy::WhenDependenciesMet),
        ..RoleSpec::default()
    })
}

fn worker(given: Worker, notes: &mut Vec<String>, errors: &mut Vec<FieldError>) -> Option<RoleSpec> {
    let at = format!("{WORKER_AT}.template");
    let mut template = templates::given(given.template, &at, notes, errors)?;
    mpi::worker(&mut template, &at, Otherwise::SshServer, notes);
    if matches!(
        given.restart_policy,
        Some(RestartPolicy::OnFailure | RestartPolicy::ExitCode)
    ) {
        notes.push(format!(
            "{WORKER_AT}.restartPolicy: a worker that is lost is replaced however it ended, as with Always"
        ));
    }
    Some(RoleSpec {
        name: WORKER.to_owned(),
        template,
        ..RoleSpec::default()
    })
}
