//! The roles of an AresJob.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use trainyard_api::{
    Dependency, DependencyState, FieldError, NodeDownPolicy, PodQuorum, RestartPolicy, RoleSpec,
};

use super::framework::{Framework, LAUNCHER, WORKER, check_host_files};
use super::{Dependence, Quorum, ROLES, RolePhase, TheirRole};
use crate::mpi::{self, Otherwise};
use crate::{Purpose, templates};

/// The roles of a TrainingJob, in the order of their names.
pub fn roles(
    framework: Framework,
    given: BTreeMap<String, TheirRole>,
    purpose: Purpose,
    notes: &mut Vec<String>,
    errors: &mut Vec<FieldError>,
) -> Vec<RoleSpec> {
    let names: Vec<String> = given.keys().cloned().collect();
    let converted = given.into_iter().map(|(name, role)| {
        let converter = Converter {
            framework,
            name: &name,
            others: &names,
            purpose,
        };
        converter.convert(role, notes, errors)
    });
    converted.collect()
}

struct Converter<'a> {
    framework: Framework,
    name: &'a str,
    /// The names of all roles.
    others: &'a [String],
    purpose: Purpose,
}

impl Converter<'_> {
    fn at(&self, field: &str) -> String {
        format!("{ROLES}.{}.{field}", self.name)
    }

    fn convert(&self, given: TheirRole, notes: &mut Vec<String>, errors: &mut Vec<FieldError>) -> RoleSpec {
        if let Some(controller) = given.controller.filter(|controller| controller != "Pod") {
            notes.push(format!(
                "{}: {controller} had no effect: all roles have pods; left out",
                self.at("controller")
            ));
        }
        let depends_on = self.depends_on(given.dependence.as_ref(), notes, errors);
        let policy = given.role_phase_policy.unwrap_or_default();
        // A user who says how it fails also says what a node that is down means.
        let is_default = self.framework == Framework::Mpi && policy.failed.is_none();
        let fails = policy.node_down_as_failed.unwrap_or_default() || is_default;
        let restart_policy = self.restart_policy(given.restart_policy, notes);
        // One that is missing is an error. The role keeps its place among the others.
        let template = self.template(given.template, notes, errors).unwrap_or_default();
        let containers = template.spec.iter().flat_map(|pod| &pod.containers);
        let mut names = containers.map(|container| container.name.as_str());
        let main = self
            .framework
            .main_container()
            .filter(|main| names.any(|name| name == *main));
        RoleSpec {
            name: self.name.to_owned(),
            replicas: Some(given.replicas.unwrap_or(1)),
            container: main.map(str::to_owned),
            template,
            restart_policy: Some(restart_policy),
            succeeded_when: Some(quorum(policy.succeeded, PodQuorum::AllPods)),
            failed_when: Some(quorum(policy.failed, PodQuorum::AnyPod)),
            node_down_policy: fails.then_some(NodeDownPolicy::Fail),
            depends_on: Some(depends_on),
            ..RoleSpec::default()
        }
    }

    fn restart_policy(&self, given: Option<RestartPolicy>, notes: &mut Vec<String>) -> RestartPolicy {
        let policy = self.framework.restart_policy(self.name, given);
        if given.is_some_and(|given| given != policy) {
            notes.push(format!(
                "{}: {policy:?}, as there: the job goes on without this role for a while",
                self.at("restartPolicy")
            ));
        }
        policy
    }

    fn template(
        &self,
        given: Option<PodTemplateSpec>,
        notes: &mut Vec<String>,
        errors: &mut Vec<FieldError>,
    ) -> Option<PodTemplateSpec> {
        let at = self.at("template");
        let mut template = templates::given(given, &at, notes, errors)?;
        let pod = template.spec.as_ref();
        let main = pod.and_then(|pod| pod.containers.first());
        let has_words = main.is_some_and(|main| mpi::words(main).next().is_some());
        // Where it is served, programs may call the SSH of their image by themselves.
        let is_reached = self.framework == Framework::Mpi && self.name == WORKER;
        if is_reached && (self.purpose == Purpose::Replace || !has_words) {
            mpi::worker(&mut template, &at, Otherwise::Image, notes);
        }
        Some(template)
    }

    fn depends_on(
        &self,
        given: Option<&Dependence>,
        notes: &mut Vec<String>,
        errors: &mut Vec<FieldError>,
    ) -> Vec<Dependency> {
        let default = self.framework.depends_on(self.name);
        let default = default.filter(|role| self.others.iter().any(|other| other == role));
        let default = default.map(|role| vec![role.to_owned()]).unwrap_or_default();
        let Some(given) = given else {
            return dependencies(&default, DependencyState::Running);
        };
        if given.mpi_host_file.is_some() {
            errors.extend(check_host_files(self.framework, self.name));
        }
        let names = given.role_names.as_deref().unwrap_or_default();
        let names = if names.is_empty() && given.mpi_host_file.is_some() && self.name == LAUNCHER {
            // Its hosts are those of the workers.
            &default
        } else {
            names
        };
        if names.is_empty() && given.mpi_host_file.is_none() {
            errors.push(FieldError::new(
                self.at("dependence.roleNames"),
                "is missing: name the roles that this one waits for, or remove dependence",
            ));
        }
        for (i, name) in names.iter().enumerate() {
            if !self.others.contains(name) {
                errors.push(FieldError::new(
                    self.at(&format!("dependence.roleNames[{i}]")),
                    format!(
                        "there is no role {name:?}: name one of {}",
                        self.others.join(", ")
                    ),
                ));
            }
        }
        match given.role_phase.unwrap_or_default() {
            RolePhase::Running => dependencies(names, DependencyState::Running),
            RolePhase::Succeeded => dependencies(names, DependencyState::Succeeded),
            RolePhase::Pending | RolePhase::Starting => {
                notes.push(format!(
                    "{}: all pods are created at once, so that nobody has to wait for that; left out",
                    self.at("dependence.rolePhase")
                ));
                Vec::new()
            }
            RolePhase::Failed => {
                errors.push(FieldError::new(
                    self.at("dependence.rolePhase"),
                    "a role can't wait until another one has failed: give Running or Succeeded",
                ));
                Vec::new()
            }
        }
    }
}

/// One dependency on each role, whatever is named twice.
fn dependencies(roles: &[String], state: DependencyState) -> Vec<Dependency> {
    let mut all: Vec<Dependency> = Vec::new();
    for role in roles {
        if !all.iter().any(|on| on.role == *role) {
            all.push(Dependency {
                role: role.clone(),
                state,
            });
        }
    }
    all
}

fn quorum(given: Option<Quorum>, default: PodQuorum) -> PodQuorum {
    match given {
        Some(Quorum::AnyPod) => PodQuorum::AnyPod,
        Some(Quorum::AllPods) => PodQuorum::AllPods,
        None => default,
    }
}
