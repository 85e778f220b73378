//! Where the script of a ScaleIn or a ScaleOut is run: in the launcher of an elastic job, by an
//! agent that is the first process there and has started the launcher's own program.
//!
//! So nobody needs a right to run commands in pods: the agent asks the observer what to run.

use k8s_openapi::api::core::v1::PodSpec;
use trainyard_contract::host_list::Hosts;
use trainyard_contract::{environment, modes};

use crate::agent;
use crate::container::variable;
use crate::job::{Job, RemoteShell, Role};
use crate::model::PodKey;
use crate::remote_shell::PROGRAM;
use crate::view::{ObserverEndpoint, Settings};

/// The pod that runs the scripts of a job, and the hosts that it knows its workers by.
pub(crate) struct ScriptHost {
    pub pod: PodKey,
    pub hosts: Hosts,
}

/// Finds the pod that runs the scripts of a job, or says why there is none.
pub(crate) fn host(job: &Job<'_>, settings: &Settings) -> Result<ScriptHost, &'static str> {
    let elastic = job.elastic.and_then(|elastic| job.roles.get(elastic.role));
    let name = elastic.map(|role| role.name);
    let launcher = job.roles.iter().enumerate().find_map(|(position, role)| {
        let pod = job.keys_of(position).next()?;
        let shell = job.framework.remote_shell(job, settings, pod)?;
        let mut hosts = shell.hosts.iter();
        let hosts = hosts.find(|hosts| hosts.role.is_some() && hosts.role.as_deref() == name)?;
        let hosts = hosts.clone();
        Some((role, ScriptHost { pod, hosts }))
    });
    let Some((role, host)) = launcher else {
        return Err("the job has no launcher to run it in");
    };
    if settings.agent_and_observer().is_none() {
        return Err("the operator has no agent to run it (--no-agent)");
    }
    if !has_command(role) {
        return Err(
            "the launcher's container has no command, so that no agent is there beside its program: set command",
        );
    }
    if !agent::can_be_reached(role.pod) {
        return Err("the launcher can't reach the operator: it has another DNS than the cluster's");
    }
    Ok(host)
}

/// Whether an agent of this pod is to run scripts.
pub(crate) fn are_run_in(job: &Job<'_>, role: &Role<'_>, shell: &RemoteShell, settings: &Settings) -> bool {
    settings.runs_scripts && job.elastic.is_some() && shell.follows && has_command(role)
}

fn has_command(role: &Role<'_>) -> bool {
    role.main.command.as_ref().is_some_and(|words| !words.is_empty())
}

/// Has the main container of a pod started by an agent that runs scripts beside it.
pub(crate) fn wrap(job: &Job<'_>, role: &Role<'_>, observer: &ObserverEndpoint, spec: &mut PodSpec) {
    let token = agent::token(spec);
    let Some(main) = spec.containers.iter_mut().find(|c| c.name == role.main.name) else {
        return;
    };
    let ours = [PROGRAM, modes::RUN, "--"].map(str::to_owned);
    let given = main.command.take().unwrap_or_default();
    main.command = Some(ours.into_iter().chain(given).collect());
    main.volume_mounts.get_or_insert_default().push(token);
    // The agent does not pass them on. One that does not know scripts does not look at them.
    let env = agent::whom_to_ask(job, observer).into_iter();
    let env = env.chain([(environment::SCRIPTS, "true")]);
    let all = main.env.get_or_insert_default();
    let new = env.filter(|(name, _)| *name != environment::JOB).map(variable);
    all.splice(0..0, new.collect::<Vec<_>>());
}
