//! Jobs to try things with.

use trainyard_api::{
    Dependency, DependencyState, RestartPolicy, RestartScope, RoleSet, RoleSpec, RunPolicy, TrainingJob,
    TrainingJobSpec, UpdatePolicy,
};
use trainyard_core::view::{Agent, ObserverEndpoint, Settings};

/// A job as a user writes it.
pub fn yaml(text: &str) -> TrainingJob {
    let mut job: TrainingJob = serde_saphyr::from_str(text).unwrap();
    job.metadata.namespace = Some("team".to_owned());
    job.metadata.uid = Some("job-uid".to_owned());
    job.metadata.generation = Some(1);
    job
}

/// A job named `mnist` with these roles.
pub fn job(framework: &str, roles: &[(&str, i32)]) -> TrainingJob {
    let template = "{spec: {containers: [{name: main, image: example/train:1}]}}";
    let role = |(name, replicas): &(&str, i32)| {
        format!("  - {{name: {name}, replicas: {replicas}, template: {template}}}\n")
    };
    let roles: String = roles.iter().map(role).collect::<Vec<_>>().concat();
    yaml(&format!(
        "metadata: {{name: mnist}}\nspec:\n  framework: {{name: {framework}}}\n  roles:\n{roles}"
    ))
}

/// Settings of an operator that has an agent and tells it about jobs.
pub fn with_agent() -> Settings {
    Settings {
        agent: Some(Agent {
            image: "registry.example/trainyard:v1".to_owned(),
            image_pull_policy: Some("IfNotPresent".to_owned()),
            may_be_root: false,
            command: vec!["/trainyard-agent".to_owned()],
            observer: Some(ObserverEndpoint {
                address: "https://trainyard-observer.trainyard-system.svc:9444".to_owned(),
                authority: "-----BEGIN CERTIFICATE-----\n".to_owned(),
            }),
        }),
        ..Settings::default()
    }
}

/// Settings of an operator that has an agent and can't tell it anything.
pub fn with_silent_agent() -> Settings {
    let mut settings = with_agent();
    if let Some(agent) = &mut settings.agent {
        agent.observer = None;
    }
    settings
}

/// An MPI job of a launcher and workers, with options.
pub fn mpi(options: &str, workers: i32) -> TrainingJob {
    let container = "{name: main, image: example/openmpi:1, command: [mpirun, /allreduce]}";
    yaml(&format!(
        "metadata: {{name: mnist}}\nspec:\n  framework: {{name: mpi, mpi: {{{options}}}}}\n  roles:\n  \
         - {{name: launcher, template: {{spec: {{containers: [{container}]}}}}}}\n  \
         - {{name: worker, replicas: {workers}, template: {{spec: {{containers: [{{name: main, image: \
         example/openmpi:1}}]}}}}}}\n"
    ))
}

pub fn custom(roles: &[(&str, i32)]) -> TrainingJob {
    job("custom", roles)
}

pub fn pytorch(roles: &[(&str, i32)]) -> TrainingJob {
    job("pytorch", roles)
}

/// A custom job of one role `worker` with a restart policy.
pub fn workers(replicas: i32, policy: RestartPolicy) -> TrainingJob {
    custom(&[("worker", replicas)]).role("worker", |role| role.restart_policy = Some(policy))
}

/// Changes to a job, in a chain.
pub trait Change: Sized {
    fn spec(self, change: impl FnOnce(&mut TrainingJobSpec)) -> Self;

    fn role(self, name: &str, change: impl FnOnce(&mut RoleSpec)) -> Self {
        self.spec(|spec| change(role(spec, name)))
    }

    fn run(self, change: impl FnOnce(&mut RunPolicy)) -> Self {
        self.spec(|spec| change(spec.run_policy.get_or_insert_default()))
    }

    /// A role waits for another.
    fn waits(self, role: &str, awaited: &str, state: DependencyState) -> Self {
        self.role(role, |role| {
            let role_name = awaited.to_owned();
            role.depends_on.get_or_insert_default().push(Dependency {
                role: role_name,
                state,
            });
        })
    }

    /// Pods of a role start anew with these.
    fn scope(self, role: &str, scope: RestartScope) -> Self {
        self.role(role, |role| role.restart_scope = Some(scope))
    }

    /// Every pod starts anew alone, whatever the framework says.
    fn one_by_one(self) -> Self {
        self.spec(|spec| {
            for role in &mut spec.roles {
                role.restart_scope = Some(RestartScope::Pod);
            }
        })
    }

    fn suspended(self) -> Self {
        self.spec(|spec| spec.suspend = Some(true))
    }

    fn backoff_limit(self, limit: i32) -> Self {
        self.run(|run| run.backoff_limit = Some(limit))
    }

    /// The job takes changes while it runs.
    fn rolls(self) -> Self {
        self.run(|run| run.update_policy = Some(UpdatePolicy::Roll))
    }

    fn succeeded_when(self, sets: &[&[&str]]) -> Self {
        self.spec(|spec| spec.completion.get_or_insert_default().succeeded_when = role_sets(sets))
    }

    fn failed_when(self, sets: &[&[&str]]) -> Self {
        self.spec(|spec| spec.completion.get_or_insert_default().failed_when = role_sets(sets))
    }
}

impl Change for TrainingJob {
    fn spec(mut self, change: impl FnOnce(&mut TrainingJobSpec)) -> Self {
        change(&mut self.spec);
        self
    }
}

/// A role of a spec.
pub fn role<'a>(spec: &'a mut TrainingJobSpec, name: &str) -> &'a mut RoleSpec {
    spec.roles.iter_mut().find(|role| role.name == name).unwrap()
}

/// The image of a role's first container.
pub fn set_image(spec: &mut TrainingJobSpec, name: &str, image: &str) {
    let pod = role(spec, name).template.spec.as_mut().unwrap();
    pod.containers[0].image = Some(image.to_owned());
}

fn role_sets(sets: &[&[&str]]) -> Vec<RoleSet> {
    let set = |names: &&[&str]| RoleSet {
        all_of: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    sets.iter().map(set).collect()
}
