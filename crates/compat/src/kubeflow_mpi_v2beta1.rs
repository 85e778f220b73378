//! `kubeflow.org/v2beta1` MPIJob, of mpi-operator.
//!
//! Its launcher is a Kubernetes Job, its workers are pods with an SSH server. Where it is served,
//! they have it here, too, with the key where its users look for it. A job that is converted is for
//! images of any kind: there processes are started through the agent, and what images have of SSH
//! stays unused.

mod definition;
mod status;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trainyard_api::{
    CleanPodPolicy, CreatePolicy, Dialect, FieldError, FrameworkSpec, LauncherOptions, MpiAttach,
    MpiImplementation, RestartPolicy, RoleSpec, RunPolicy, TrainingJob, TrainingJobSpec, names,
};
use trainyard_core::job::Job;
use trainyard_core::remote_shell;
use trainyard_core::view::Settings;

use crate::mpi::{self, LAUNCHER, Otherwise, WORKER};
use crate::{Converted, Extras, Kind, Purpose, read, templates};

const THEIR_OPERATOR: &str = "kubeflow.org/mpi-operator";
const ROLES: &str = "spec.mpiReplicaSpecs";
/// The script by which elastic programs ask for hosts there.
const DISCOVER_HOSTS: &str = "discover_hosts.sh";

pub const KIND: Kind = Kind {
    group: "kubeflow.org",
    version: "v2beta1",
    name: "MPIJob",
    plural: "mpijobs",
    flag: "kubeflow-mpi",
    dialect: Dialect::KubeflowMpi,
    translate,
    paths: &[
        ("spec.roles[0]", "spec.mpiReplicaSpecs.Launcher"),
        ("spec.roles[1]", "spec.mpiReplicaSpecs.Worker"),
        ("spec.roles", ROLES),
        ("spec.framework.mpi.slotsPerWorker", "spec.slotsPerWorker"),
        ("spec.framework.mpi.sshAuthMountPath", "spec.sshAuthMountPath"),
        ("spec.framework", "spec"),
        ("spec.suspend", "spec.runPolicy.suspend"),
        ("spec.managedBy", "spec.runPolicy.managedBy"),
    ],
    status: status::status,
    event: status::event,
    definition: definition::definition,
    extras: Extras {
        component: "mpi-job-controller",
        managed_by: Some("/spec/runPolicy/managedBy"),
        their_operator: Some(THEIR_OPERATOR),
        config: Some(config),
        suspend: Some("spec.runPolicy.suspend"),
        launcher_deadline: Some("/spec/runPolicy/activeDeadlineSeconds"),
        keep: Some(keep),
        ..Extras::NONE
    },
};

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    slots_per_worker: Option<i32>,
    run_launcher_as_worker: Option<bool>,
    run_policy: Option<TheirRunPolicy>,
    launcher_creation_policy: Option<LauncherCreationPolicy>,
    ssh_auth_mount_path: Option<String>,
    mpi_implementation: Option<MpiImplementation>,
    mpi_replica_specs: Option<BTreeMap<String, Role>>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct TheirRunPolicy {
    clean_pod_policy: Option<CleanPodPolicy>,
    ttl_seconds_after_finished: Option<i32>,
    active_deadline_seconds: Option<i64>,
    backoff_limit: Option<i32>,
    suspend: Option<bool>,
    managed_by: Option<String>,
    /// Nothing of it has a counterpart, so it only becomes a note.
    scheduling_policy: Option<Value>,
}

#[derive(Clone, Copy, Deserialize, Serialize)]
enum LauncherCreationPolicy {
    AtStartup,
    WaitForWorkersReady,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Role {
    replicas: Option<i32>,
    template: Option<PodTemplateSpec>,
    restart_policy: Option<TheirRestartPolicy>,
}

#[derive(Clone, Copy, Deserialize, Serialize)]
enum TheirRestartPolicy {
    Never,
    OnFailure,
}

/// A launcher and its workers, with all that a job needs.
struct Roles {
    launcher: RoleSpec,
    worker: RoleSpec,
}

fn translate(
    object: &Value,
    purpose: Purpose,
    errors: &mut Vec<FieldError>,
) -> Result<Converted, Vec<FieldError>> {
    let read::Object {
        metadata,
        mut spec,
        mut notes,
    } = read::object::<Spec>(object, purpose)?;
    let given = spec.mpi_replica_specs.take().unwrap_or_default();
    let mut roles = roles(given, purpose, &mut notes, errors).ok_or_else(Vec::new)?;
    roles.launcher.create_policy = create_policy(spec.launcher_creation_policy, &mut notes);
    let run = spec.run_policy.take().unwrap_or_default();
    if purpose == Purpose::Replace
        && run.active_deadline_seconds.is_some()
        && roles.launcher.create_policy == Some(CreatePolicy::WhenDependenciesMet)
    {
        notes.push(
            "spec.runPolicy.activeDeadlineSeconds: begins with the job, and not with its launcher: add the time that workers \
             may take to get ready"
                .to_owned(),
        );
    }
    let mut job = TrainingJob {
        metadata,
        spec: TrainingJobSpec {
            framework: FrameworkSpec {
                name: "mpi".to_owned(),
                mpi: Some(options(spec, purpose, &mut notes)),
                ..FrameworkSpec::default()
            },
            roles: vec![roles.launcher, roles.worker],
            suspend: run.suspend,
            managed_by: managed_by(run.managed_by.as_deref(), purpose, &mut notes),
            ..TrainingJobSpec::default()
        },
        status: None,
    };
    job.spec.run_policy = run_policy(&run, &mut notes);
    Ok(Converted { job, notes })
}

/// The list of hosts, where its users look for it. Pods have it from elsewhere.
fn config(job: &Job<'_>, settings: &Settings) -> Option<ConfigMap> {
    let labels = [
        ("app", job.name),
        (names::LABEL_MANAGED_BY, names::MANAGED_BY),
        (names::LABEL_JOB, job.name),
    ];
    let labels = labels.map(|(label, value)| (label.to_owned(), value.to_owned()));
    Some(ConfigMap {
        metadata: ObjectMeta {
            name: Some(names::mpi_config(job.name)),
            namespace: Some(job.namespace.to_owned()),
            labels: Some(labels.into()),
            ..ObjectMeta::default()
        },
        data: Some([("hostfile".to_owned(), remote_shell::host_list(job, settings)?)].into()),
        ..ConfigMap::default()
    })
}

/// How processes are started: over SSH where users have images that are made for it, and through
/// the agent elsewhere.
fn options(spec: Spec, purpose: Purpose, notes: &mut Vec<String>) -> LauncherOptions {
    // To their operator, an empty path is none.
    let path = spec.ssh_auth_mount_path.filter(|path| !path.is_empty());
    let (attach, ssh_auth_mount_path) = match purpose {
        Purpose::Serve => (MpiAttach::Ssh, path),
        Purpose::Replace => {
            notes.push(
                "spec: processes are started in workers through the operator's agent and not over SSH: images need neither a \
                 server nor keys. To keep SSH, set spec.framework.mpi.attach to Ssh, and sshAuthMountPath and the worker's \
                 command as they were"
                    .to_owned(),
            );
            notes.extend(path.map(|path| {
                format!(
                    "spec.sshAuthMountPath: no key is mounted to {path}, because none is needed; left out"
                )
            }));
            (MpiAttach::Agent, None)
        }
    };
    LauncherOptions {
        implementation: spec.mpi_implementation,
        // Left out, ours would be the number of accelerators.
        slots_per_worker: Some(spec.slots_per_worker.unwrap_or(1)),
        attach: Some(attach),
        ssh_auth_mount_path,
        launcher_as_worker: spec.run_launcher_as_worker,
        ..LauncherOptions::default()
    }
}

fn roles(
    mut given: BTreeMap<String, Role>,
    purpose: Purpose,
    notes: &mut Vec<String>,
    errors: &mut Vec<FieldError>,
) -> Option<Roles> {
    let mut take = |name: &str| {
        let role = given.remove(name);
        if role.is_none() {
            errors.push(FieldError::new(
                format!("{ROLES}.{name}"),
                "is missing: a job needs a launcher and at least one worker",
            ));
        }
        role
    };
    let (launcher, worker) = (take("Launcher"), take("Worker"));
    errors.extend(given.keys().map(|name| {
        FieldError::new(
            format!("{ROLES}.{name}"),
            "an MPIJob has a Launcher and a Worker and nothing else: write one of these, or remove it",
        )
    }));
    let launcher = launcher.and_then(|launcher| self::launcher(launcher, notes, errors));
    let worker = worker.and_then(|worker| self::worker(worker, purpose, notes, errors));
    let (launcher, worker) = launcher.zip(worker)?;
    Some(Roles { launcher, worker })
}

fn launcher(given: Role, notes: &mut Vec<String>, errors: &mut Vec<FieldError>) -> Option<RoleSpec> {
    let at = format!("{ROLES}.Launcher");
    if let Some(count) = given.replicas.filter(|count| *count != 1) {
        let message = format!("{count} launchers: there is exactly one, so give 1, or leave it out");
        errors.push(FieldError::new(format!("{at}.replicas"), message));
    }
    if matches!(given.restart_policy, Some(TheirRestartPolicy::Never)) {
        notes.push(format!(
            "{at}.restartPolicy: OnFailure, because Never, too, had the launcher tried again in a new pod until backoffLimit; \
             set runPolicy.backoffLimit to 0 for a launcher that is tried once"
        ));
    }
    let at = format!("{at}.template");
    let template = templates::given(given.template, &at, notes, errors)?;
    note_discovery(&template, &at, notes);
    Some(RoleSpec {
        name: LAUNCHER.to_owned(),
        replicas: Some(1),
        template,
        restart_policy: given.restart_policy.map(|_| RestartPolicy::OnFailure),
        ..RoleSpec::default()
    })
}

/// Notes what a launcher will not find.
fn note_discovery(template: &PodTemplateSpec, at: &str, notes: &mut Vec<String>) {
    let containers = template.spec.iter().flat_map(|pod| &pod.containers);
    for (c, container) in containers.enumerate() {
        if mpi::words(container).any(|word| word.contains(DISCOVER_HOSTS)) {
            notes.push(format!(
                "{at}.spec.containers[{c}]: there is no {DISCOVER_HOSTS}, because the number of workers does not change \
                 while a job runs; the hosts are in /etc/mpi/hostfile"
            ));
        }
    }
}

fn worker(
    given: Role,
    purpose: Purpose,
    notes: &mut Vec<String>,
    errors: &mut Vec<FieldError>,
) -> Option<RoleSpec> {
    let at = format!("{ROLES}.Worker");
    if given.replicas.is_none() {
        errors.push(FieldError::new(
            format!("{at}.replicas"),
            "is missing: give the number of workers, at least 1",
        ));
    }
    let template_at = format!("{at}.template");
    let mut template = templates::given(given.template, &template_at, notes, errors)?;
    if purpose == Purpose::Replace {
        mpi::worker(&mut template, &template_at, Otherwise::SshServer, notes);
    }
    if given.restart_policy.is_some() {
        notes.push(format!(
            "{at}.restartPolicy: Always, because a worker that is gone was made anew with Never and OnFailure, too, and the \
             launcher alone decided the end; here one that has ended is replaced as well"
        ));
    }
    Some(RoleSpec {
        name: WORKER.to_owned(),
        replicas: given.replicas,
        template,
        // What was sshd until its pod was deleted has ended well, and is needed all the same.
        restart_policy: given.restart_policy.map(|_| RestartPolicy::Always),
        ..RoleSpec::default()
    })
}

/// Former versions gave workers the restart policy that their object has.
fn keep(child: &TrainingJob, job: &mut TrainingJob, notes: &mut Vec<String>) {
    let former = child.spec.roles.iter().find(|role| role.name == WORKER);
    let worker = job.spec.roles.iter_mut().find(|role| role.name == WORKER);
    let (Some(former), Some(worker)) = (former.and_then(|role| role.restart_policy), worker) else {
        return;
    };
    if worker.restart_policy.replace(former) == Some(former) {
        return;
    }
    let field = format!("{ROLES}.Worker.restartPolicy: ");
    notes.retain(|note| !note.starts_with(&field));
    notes.push(format!(
        "{field}{former:?}, because its workers have it from an older operator; for Always, set spec.runPolicy.suspend to true, and \
         to false when the job is suspended"
    ));
}

fn create_policy(policy: Option<LauncherCreationPolicy>, notes: &mut Vec<String>) -> Option<CreatePolicy> {
    match policy? {
        LauncherCreationPolicy::WaitForWorkersReady => Some(CreatePolicy::WhenDependenciesMet),
        LauncherCreationPolicy::AtStartup => {
            notes.push(
                "spec.launcherCreationPolicy: the launcher's pod is created with the others, but its program starts only when \
                 the workers are ready"
                    .to_owned(),
            );
            None
        }
    }
}

fn managed_by(given: Option<&str>, purpose: Purpose, notes: &mut Vec<String>) -> Option<String> {
    let other = given.filter(|name| *name != THEIR_OPERATOR);
    if given.is_some() && other.is_none() && purpose == Purpose::Replace {
        notes.push(format!(
            "spec.runPolicy.managedBy: {THEIR_OPERATOR} does not know TrainingJobs; left out, so that Trainyard runs the job"
        ));
    }
    other.map(str::to_owned)
}

fn run_policy(given: &TheirRunPolicy, notes: &mut Vec<String>) -> Option<RunPolicy> {
    match given.clean_pod_policy {
        None => notes.push(
            "spec.runPolicy.cleanPodPolicy: is not given, which left workers where they were; here pods that still run are \
             deleted at the end, so that they hold no accelerator. To keep them, set it to None"
                .to_owned(),
        ),
        Some(CleanPodPolicy::All) => notes.push(
            "spec.runPolicy.cleanPodPolicy: All deletes the launcher's pod and its log, too; Running keeps them".to_owned(),
        ),
        Some(CleanPodPolicy::Running | CleanPodPolicy::None) => {}
    }
    if given.scheduling_policy.is_some() {
        notes.push(
            "spec.runPolicy.schedulingPolicy: there are no pod groups yet, so that pods are placed one by one; left out. For \
             priorities, set priorityClassName in the templates"
                .to_owned(),
        );
    }
    let policy = RunPolicy {
        clean_pod_policy: given.clean_pod_policy,
        ttl_seconds_after_finished: given.ttl_seconds_after_finished.map(i64::from),
        active_deadline_seconds: given.active_deadline_seconds,
        backoff_limit: given.backoff_limit,
        ..RunPolicy::default()
    };
    (policy != RunPolicy::default()).then_some(policy)
}
