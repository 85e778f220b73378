//! Programs that are started in other pods through the API server: who may, in which pods, and what
//! the pods have for it.

use k8s_openapi::api::core::v1::{
    ConfigMapProjection, KeyToPath, PodSpec, ProjectedVolumeSource, ServiceAccount,
    ServiceAccountTokenProjection, Volume, VolumeMount, VolumeProjection,
};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role as RbacRole, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use trainyard_api::{FieldError, RoleSpec, TrainingJob, names};
use trainyard_contract::directories::identity::{self, DIRECTORY};
use trainyard_contract::environment;
use trainyard_contract::shell::exec_path;

use crate::container::variable;
use crate::job::{Job, Role};
use crate::metadata::{child_labels, child_metadata};
use crate::model::PodNames;

/// These belong to the operator; `trainyard_api::validate` keeps users from names that begin like
/// this.
const VOLUME: &str = "trainyard-identity";
/// A kubelet replaces a token when a fifth of its life is left, and the agent reads it for every
/// command.
const TOKEN_SECONDS: i64 = 3600;
/// Every namespace has it: the certificates by which the API server is known.
const AUTHORITY: &str = "kube-root-ca.crt";
const RBAC: &str = "rbac.authorization.k8s.io";

/// The pods that the right of a job may cover; `None` if the job has no such right. RBAC knows pods
/// by their names alone, and anybody's pod may have the name of one that does not exist yet or any
/// more. So only those are covered that exist and have this job as their controller, by its UID;
/// `owned` are their names.
pub fn extent<'n>(job: &Job<'_>, owned: impl IntoIterator<Item = &'n str>) -> Option<PodNames> {
    let right = job.framework.exec(job)?;
    let is_covered = |name: &&str| job.key(name).is_some_and(|key| key.role == right.into);
    let mut names: Vec<Box<str>> = owned.into_iter().filter(is_covered).map(Box::from).collect();
    names.sort_unstable();
    Some(names.into())
}

/// The account of the pods that have the right. No container finds its token but the one that is
/// given it.
pub fn account(job: &Job<'_>) -> ServiceAccount {
    ServiceAccount {
        metadata: metadata(job),
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}

/// The right as it is created: it covers no pod.
pub fn role(job: &Job<'_>) -> RbacRole {
    RbacRole {
        metadata: metadata(job),
        rules: None,
    }
}

/// The rules of a right to run commands in exactly these pods.
pub fn rules(pods: &PodNames) -> Vec<PolicyRule> {
    if pods.is_empty() {
        // A rule without names would cover all pods of the namespace.
        return Vec::new();
    }
    vec![PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["pods/exec".to_owned()]),
        resource_names: Some(pods.iter().map(ToString::to_string).collect()),
        // A WebSocket begins with a GET, and from 1.35 on the server asks for `create` too.
        verbs: vec!["create".to_owned(), "get".to_owned()],
        ..PolicyRule::default()
    }]
}

/// Gives the right to the account.
pub fn binding(job: &Job<'_>) -> RoleBinding {
    let name = names::mpi_account(job.name);
    RoleBinding {
        metadata: metadata(job),
        role_ref: RoleRef {
            api_group: Some(RBAC.to_owned()),
            kind: "Role".to_owned(),
            name: name.clone(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name,
            namespace: Some(job.namespace.to_owned()),
            api_group: None,
        }]),
    }
}

fn metadata(job: &Job<'_>) -> ObjectMeta {
    ObjectMeta {
        labels: Some(child_labels(job)),
        ..child_metadata(job, names::mpi_account(job.name))
    }
}

/// Lets the main container of a pod of this role use the right, if it is one that has it.
pub(crate) fn allow(job: &Job<'_>, position: usize, role: &Role<'_>, spec: &mut PodSpec) {
    let Some(right) = job.framework.exec(job).filter(|right| right.holder == position) else {
        return;
    };
    let Some(target) = job.roles.get(right.into) else {
        return;
    };
    spec.service_account_name = Some(names::mpi_account(job.name));
    // Whatever is in the template of a job that admission did not see: sidecars are not to have the
    // token.
    spec.automount_service_account_token = Some(false);
    spec.volumes.get_or_insert_default().push(volume());
    let Some(main) = spec.containers.iter_mut().find(|c| c.name == role.main.name) else {
        return;
    };
    main.volume_mounts.get_or_insert_default().push(VolumeMount {
        name: VOLUME.to_owned(),
        mount_path: DIRECTORY.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    });
    let path = exec_path(job.namespace, &target.main.name);
    let env = [(environment::EXEC, &*path), (environment::IDENTITY, DIRECTORY)];
    main.env.get_or_insert_default().splice(0..0, env.map(variable));
}

fn volume() -> Volume {
    let token = VolumeProjection {
        service_account_token: Some(ServiceAccountTokenProjection {
            audience: None,
            expiration_seconds: Some(TOKEN_SECONDS),
            path: identity::names::TOKEN.to_owned(),
        }),
        ..VolumeProjection::default()
    };
    let authority = VolumeProjection {
        config_map: Some(ConfigMapProjection {
            name: AUTHORITY.to_owned(),
            items: Some(vec![KeyToPath {
                key: "ca.crt".to_owned(),
                path: identity::names::AUTHORITY.to_owned(),
                mode: None,
            }]),
            optional: None,
        }),
        ..VolumeProjection::default()
    };
    Volume {
        name: VOLUME.to_owned(),
        projected: Some(ProjectedVolumeSource {
            sources: Some(vec![token, authority]),
            // Programs run as any user.
            default_mode: Some(0o444),
        }),
        ..Volume::default()
    }
}

/// What is wrong with the accounts that the templates of a job name. The account of a job with an
/// exec right is for the launcher of that job alone: whoever has its token may run commands in the
/// workers. It may not exist yet, so its name decides.
pub(crate) fn check_accounts(job: &TrainingJob) -> Vec<FieldError> {
    let given = job
        .spec
        .roles
        .iter()
        .enumerate()
        .flat_map(|(i, role)| accounts(role).map(move |(field, name)| (i, field, name)));
    let taken = given.filter(|(_, _, name)| names::is_mpi_account(name));
    let problem = |(i, field, name): (usize, _, &str)| {
        let message = format!(
            "accounts with names such as {name:?} belong to jobs with attach Exec, whose launchers alone may use them: name \
             another account"
        );
        FieldError::new(format!("spec.roles[{i}].template.spec.{field}"), message)
    };
    taken.map(problem).collect()
}

/// The accounts that a role names, and in which fields.
fn accounts(role: &RoleSpec) -> impl Iterator<Item = (&'static str, &str)> {
    let spec = role.template.spec.as_ref();
    let given = [
        (
            "serviceAccountName",
            spec.and_then(|spec| spec.service_account_name.as_deref()),
        ),
        (
            "serviceAccount",
            spec.and_then(|spec| spec.service_account.as_deref()),
        ),
    ];
    let given = given.into_iter().filter_map(|(field, name)| Some((field, name?)));
    given.filter(|(_, name)| !name.is_empty())
}

/// What is wrong with the account of a role whose pods get one of the job's own.
pub(crate) fn check_account(job: &TrainingJob, role: &str) -> Vec<FieldError> {
    let roles = job.spec.roles.iter().enumerate();
    let mut errors = Vec::new();
    for (i, role) in roles.filter(|(_, given)| given.name == role) {
        let spec = role.template.spec.as_ref();
        for (field, _) in accounts(role) {
            errors.push(FieldError::new(
                format!("spec.roles[{i}].template.spec.{field}"),
                "with attach Exec the launcher has an account of this job alone, and to give another one the same right would \
                 be to give it to all who use that: remove it, or set attach to Agent",
            ));
        }
        if spec.and_then(|spec| spec.automount_service_account_token) == Some(true) {
            errors.push(FieldError::new(
                format!("spec.roles[{i}].template.spec.automountServiceAccountToken"),
                "with attach Exec the launcher's account may run commands in the workers, and every container of the pod would \
                 find its token: remove this, or set attach to Agent",
            ));
        }
    }
    errors
}
