//! Which jobs with a launcher are refused.

use trainyard_api::validate::domain_name_problem;
use trainyard_api::{FieldError, LauncherOptions, MpiAttach, RestartPolicy, RoleSpec, TrainingJob, names};

use super::{LAUNCHER, WORKER, attach, field, identity_directory, launcher_works, main_of, options, slots};
use crate::exec::check_account;
use crate::frameworks::hostfiles::{self, is_within, misspelt, over_progress};
use crate::remote_shell::{DIRECTORY, PORT};

/// What is wrong with `slotsPerWorker`.
pub(in crate::frameworks) fn check_slots(job: &TrainingJob) -> Option<FieldError> {
    let slots = options(job).slots_per_worker.filter(|slots| *slots < 1)?;
    Some(FieldError::new(
        field(job, "slotsPerWorker"),
        format!("{slots} processes can't train: give at least 1, or leave it out"),
    ))
}

/// What is wrong with a job.
pub(super) fn check(job: &TrainingJob) -> Vec<FieldError> {
    let mut errors = Vec::from_iter(check_slots(job));
    let options = options(job);
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let secret = names::mpi_secret(name);
    if secret.len() > names::MAX_NAME {
        errors.push(FieldError::new(
            "metadata.name",
            format!(
                "the Secret name {secret:?} is longer than {} characters: shorten it",
                names::MAX_NAME
            ),
        ));
    }
    errors.extend(check_ssh(job, options));
    if options.attach == Some(MpiAttach::Ssh) && options.remote_shells.is_some() {
        errors.push(FieldError::new(
            field(job, "remoteShells"),
            "with attach Ssh these are programs of the image: remove this, or set attach to Agent",
        ));
    }
    if options.attach == Some(MpiAttach::Exec) {
        errors.extend(check_account(job, LAUNCHER));
    }
    let identity = identity_directory(options);
    let given = options.host_files.as_deref().unwrap_or_default();
    errors.extend(hostfiles::check(
        &field(job, "hostFiles"),
        given,
        identity,
        job.reports_progress(),
    ));
    errors.extend(hostfiles::check_length(
        &field(job, "hostFiles"),
        given,
        processes(job),
    ));
    errors.extend(check_completion(job));
    for (i, role) in job.spec.roles.iter().enumerate() {
        if role.name == WORKER {
            errors.extend(check_worker(job, i));
        }
        if role.name == LAUNCHER && role.restart_policy == Some(RestartPolicy::Always) {
            errors.push(FieldError::new(
                format!("spec.roles[{i}].restartPolicy"),
                "the job succeeds when the launcher does, and one that restarts always never does: give OnFailure, or leave it out",
            ));
        }
    }
    errors
}

/// How many processes the hosts may have together.
fn processes(job: &TrainingJob) -> i64 {
    let hosts = job.spec.roles.iter().filter(|role| {
        let launches = role.name == LAUNCHER && launcher_works(job);
        launches || role.name == WORKER
    });
    let each = hosts.map(|role| {
        let replicas = i64::from(job.spec.most_replicas(role));
        let slots = main_of(role).map_or(1, |main| slots(job, main));
        replicas.saturating_mul(slots.into())
    });
    each.fold(0, i64::saturating_add)
}

/// What is wrong with where the SSH key is, and where it is to be.
fn check_ssh(job: &TrainingJob, options: &LauncherOptions) -> Vec<FieldError> {
    let has_key = options.attach == Some(MpiAttach::Ssh);
    let without = || "there is a key only with attach Ssh: remove this, or set attach to Ssh".to_owned();
    let path = options.ssh_auth_mount_path.as_deref().and_then(|path| {
        if !has_key {
            Some(without())
        } else if path.is_empty() {
            Some("give a directory, such as the .ssh of a user, or leave it out".to_owned())
        } else if hostfiles::is_needed(path) {
            Some(format!(
                "a volume in the place of {path} would hide what programs need: give a directory of its own, such as the .ssh of a user"
            ))
        } else if is_within(path, DIRECTORY) || is_within(DIRECTORY, path) {
            Some(format!(
                "{DIRECTORY} is for what MPI needs: give the directory .ssh of a user"
            ))
        } else {
            misspelt(path).or_else(|| over_progress(path).filter(|_| job.reports_progress()))
        }
    });
    let secret = options.ssh_auth_secret_name.as_deref().and_then(|name| {
        if has_key {
            domain_name_problem(name)
        } else {
            Some(without())
        }
    });
    let problems = [("sshAuthMountPath", path), ("sshAuthSecretName", secret)];
    problems
        .into_iter()
        .filter_map(|(name, problem)| Some(FieldError::new(field(job, name), problem?)))
        .collect()
}

/// What is wrong with rules by which the job succeeds when its workers do. That those restart
/// always, as they do unless the user says otherwise, is refused by the rules of every job, but to
/// say otherwise alone would not help.
fn check_completion(job: &TrainingJob) -> Vec<FieldError> {
    let worker = job.spec.roles.iter().find(|role| role.name == WORKER);
    let serves = |worker: &RoleSpec| {
        let is_empty = |words: &Option<Vec<String>>| words.as_ref().is_none_or(Vec::is_empty);
        let main = main_of(worker);
        main.is_some_and(|main| is_empty(&main.command) && is_empty(&main.args))
    };
    if !worker.is_some_and(serves) {
        return Vec::new();
    }
    let sets = job.spec.completion.iter().flat_map(|rules| &rules.succeeded_when);
    let named = sets.enumerate().flat_map(|(i, set)| {
        let of_workers = set.all_of.iter().enumerate().filter(|(_, name)| *name == WORKER);
        of_workers.map(move |(j, _)| format!("spec.completion.succeededWhen[{i}].allOf[{j}]"))
    });
    named
        .map(|path| {
            FieldError::new(
                path,
                "workers without a command of their own serve until the launcher ends, and never succeed: name the launcher \
                 instead, or give them a command",
            )
        })
        .collect()
}

/// What is wrong with the workers.
fn check_worker(job: &TrainingJob, position: usize) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(role) = job.spec.roles.get(position) else {
        return errors;
    };
    let at = format!("spec.roles[{position}]");
    // Otherwise the worker's program is its own affair.
    let Some(pod) = role
        .template
        .spec
        .as_ref()
        .filter(|_| attach(job) == MpiAttach::Agent)
    else {
        return errors;
    };
    for (c, container) in pod.containers.iter().enumerate() {
        let at = format!("{at}.template.spec.containers[{c}]");
        let is_main = match &role.container {
            Some(main) => *main == container.name,
            None => c == 0,
        };
        let given = |words: &Option<Vec<String>>| words.as_ref().is_some_and(|words| !words.is_empty());
        if is_main && given(&container.args) && !given(&container.command) {
            errors.push(FieldError::new(
                format!("{at}.args"),
                "the agent starts the worker's program, and can't know the command that is in its image: give command \
                 too, or remove args, and the worker only waits for what is started in it",
            ));
        }
        for (p, port) in container.ports.iter().flatten().enumerate() {
            if port.container_port == PORT && port.protocol.as_deref().unwrap_or("TCP") == "TCP" {
                errors.push(FieldError::new(
                    format!("{at}.ports[{p}].containerPort"),
                    format!("the agent listens on port {PORT}: give another one"),
                ));
            }
        }
    }
    errors
}
