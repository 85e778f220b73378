//! Frameworks that are declared in a `Framework` object, in place of Rust.
//!
//! [`compile`] makes a [framework](crate::job::Framework) of a declaration: its roles are data as
//! those of every framework, and its capabilities evaluate expressions. All that is wrong with a
//! declaration is told at once, each with its field.

mod compile;
mod params;
mod review;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMapVolumeSource, EmptyDirVolumeSource, Volume};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use trainyard_api::declaration::{DeclaredParam, DeclaredService, EmptyDirMount, Medium};
use trainyard_api::{FieldError, TrainingJob, names};

use crate::cel::{Expression, Meter, Names, Pod, RoleFacts, Subject, Value};
use crate::dialect;
use crate::job::{
    Content, Directory, Env, Environment, ExtraService, File, Files, Job, Place, Port, Ports, Replica,
    Validation,
};
use crate::members::Members;
use crate::model::{PodKey, ServiceKey};

pub use compile::compile;

/// How many steps all expressions may take for one pod. Admission allows fewer for all pods of a
/// job, so that none fails here.
const STEPS_OF_POD: u64 = 50_000_000;

/// A declaration whose expressions were checked.
struct Declared {
    params: Vec<(String, DeclaredParam)>,
    /// The roles in the order of ranks. Empty: any, in the order of the job.
    roles: Vec<String>,
    /// Whether pods go on when others join and leave.
    resizes: bool,
    service: DeclaredService,
    variables: Vec<Variable>,
    reserved: Vec<String>,
    ports: Vec<DeclaredPort>,
    files: Vec<DeclaredFile>,
    mounts: Vec<Mount>,
    rules: Vec<Rule>,
    /// How many values its expressions keep for all pods of a job.
    kept: usize,
}

/// Which pods have something.
struct Condition {
    /// Empty: those of all roles.
    roles: Vec<String>,
    when: Option<Expression>,
}

struct Variable {
    name: String,
    content: VariableContent,
    condition: Condition,
}

enum VariableContent {
    Value(Expression),
    Field(String),
}

struct DeclaredPort {
    name: String,
    number: Expression,
    condition: Condition,
}

struct DeclaredFile {
    path: String,
    content: Expression,
    condition: Condition,
}

struct Mount {
    path: String,
    source: MountSource,
    condition: Condition,
}

enum MountSource {
    EmptyDir(EmptyDirMount),
    ConfigMap { name: Expression, optional: bool },
}

struct Rule {
    condition: Expression,
    message: String,
    path: String,
}

/// One pod, for expressions.
#[derive(Clone, Copy)]
struct At<'a> {
    subject: &'a Subject,
    pod: Pod,
}

impl At<'_> {
    fn value(self, expression: &Expression, meter: &mut Meter) -> Option<Value> {
        expression.evaluate(self.subject, Some(self.pod), meter).ok()
    }

    fn has(self, condition: &Condition, meter: &mut Meter) -> bool {
        let role = self.subject.role_name(self.pod.role);
        let has_role = condition.roles.is_empty() || condition.roles.iter().any(|name| name == role);
        let holds = |when: &Expression, meter: &mut Meter| {
            self.value(when, meter)
                .is_none_or(|value| value == Value::Bool(true))
        };
        has_role && condition.when.as_ref().is_none_or(|when| holds(when, meter))
    }
}

impl Declared {
    /// The job as expressions see it.
    fn subject<'a>(
        &self,
        object: &TrainingJob,
        roles: impl Iterator<Item = (&'a str, Members)>,
        cluster_domain: &str,
    ) -> Subject {
        let job = object.metadata.name.as_deref().unwrap_or_default();
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let dialect = dialect::of(object);
        let mut roles: Vec<(&str, Members)> = roles.collect();
        roles.sort_by_key(|(name, _)| self.roles.iter().position(|known| known == name));
        let facts = roles.into_iter().map(|(name, members)| {
            let pattern = if dialect::is_single(dialect, name) {
                format!("{job}-{name}")
            } else {
                format!("{job}-{name}-{{}}")
            };
            RoleFacts::new(name, &members, pattern)
        });
        let of_namespace = format!("{namespace}.svc.{cluster_domain}");
        let master = format!("{}.{of_namespace}", names::master_service(job));
        let names = Names {
            job,
            namespace,
            domain: format!("{}.{of_namespace}", names::service(job)),
            master: (self.service == DeclaredService::Master).then_some(master),
        };
        let params = params::values(&self.params, &object.spec.framework.params);
        Subject::new(names, facts.collect(), params, self.kept)
    }

    /// A pod of a job. The job keeps what is the same for all of its pods.
    fn at<'a>(&self, job: &'a Job<'_>, key: PodKey, cluster_domain: &str) -> Option<At<'a>> {
        let roles = || job.roles.iter().map(|role| (role.name, role.members.clone()));
        let subject = job.common_value(|| self.subject(job.object, roles(), cluster_domain))?;
        let role = subject.role(job.roles.get(key.role)?.name)?;
        let index = i64::from(key.index);
        Some(At {
            subject,
            pod: Pod { role, index },
        })
    }

    fn at_replica<'a>(&self, replica: &Replica<'a>) -> Option<At<'a>> {
        self.at(replica.job, replica.key, replica.cluster_domain)
    }

    fn ports_at(&self, at: At<'_>) -> Vec<Port> {
        let mut meter = Meter::new(STEPS_OF_POD);
        let mut port = |port: &DeclaredPort| {
            let Some(Value::Int(number)) = at
                .has(&port.condition, &mut meter)
                .then(|| at.value(&port.number, &mut meter))?
            else {
                return None;
            };
            Some(Port {
                name: port.name.clone().into(),
                number: i32::try_from(number).ok()?,
            })
        };
        self.ports.iter().filter_map(&mut port).collect()
    }
}

/// The capabilities of a declared framework.
#[derive(Clone)]
struct Capabilities(Arc<Declared>);

impl Environment for Capabilities {
    fn variables(&self, replica: &Replica<'_>) -> Env {
        let mut env = Env::default();
        let Some(at) = self.0.at_replica(replica) else {
            return env;
        };
        let mut meter = Meter::new(STEPS_OF_POD);
        for variable in &self.0.variables {
            if !at.has(&variable.condition, &mut meter) {
                continue;
            }
            match &variable.content {
                VariableContent::Field(path) => env.set_field(&variable.name, path),
                VariableContent::Value(value) => {
                    let value = at.value(value, &mut meter).and_then(|value| value.plain());
                    if let Some(value) = value {
                        env.set(&variable.name, value);
                    }
                }
            }
        }
        env
    }

    fn reserved(&self, _: &TrainingJob) -> Vec<&str> {
        self.0.reserved.iter().map(String::as_str).collect()
    }
}

impl Ports for Capabilities {
    fn ports(&self, replica: &Replica<'_>) -> Vec<Port> {
        let at = self.0.at_replica(replica);
        at.map(|at| self.0.ports_at(at)).unwrap_or_default()
    }

    fn services(&self, job: &Job<'_>) -> Vec<ExtraService> {
        if self.0.service != DeclaredService::Master {
            return Vec::new();
        }
        let pod = job.rank_zero();
        // Ports are numbers and say nothing of hosts.
        let at = self.0.at(job, pod, DEFAULT_DOMAIN);
        let port = at.and_then(|at| self.0.ports_at(at).into_iter().next());
        let service = port.map(|port| ExtraService {
            key: ServiceKey::Master,
            pod,
            port,
        });
        Vec::from_iter(service)
    }
}

impl Files for Capabilities {
    fn files(&self, replica: &Replica<'_>) -> Vec<File> {
        let Some(at) = self.0.at_replica(replica) else {
            return Vec::new();
        };
        let mut meter = Meter::new(STEPS_OF_POD);
        let mut file = |file: &DeclaredFile| {
            let has = at.has(&file.condition, &mut meter);
            let content = has.then(|| at.value(&file.content, &mut meter))??;
            Some(File {
                path: file.path.clone(),
                content: content.plain()?,
            })
        };
        self.0.files.iter().filter_map(&mut file).collect()
    }

    fn directories(&self, replica: &Replica<'_>) -> Vec<Directory> {
        let Some(at) = self.0.at_replica(replica) else {
            return Vec::new();
        };
        let mut meter = Meter::new(STEPS_OF_POD);
        let mut directory = |mount: &Mount| {
            let has = at.has(&mount.condition, &mut meter);
            let volume = has.then(|| volume(&mount.source, at, &mut meter))??;
            Some(Directory {
                path: mount.path.clone(),
                volume,
            })
        };
        self.0.mounts.iter().filter_map(&mut directory).collect()
    }

    fn places(&self, role: &str) -> Vec<Place> {
        let of_files = self.0.files.iter().map(|file| (&file.path, &file.condition));
        let of_mounts = self.0.mounts.iter().map(|mount| (&mount.path, &mount.condition));
        let of_role = |(_, condition): &(&String, &Condition)| {
            condition.roles.is_empty() || condition.roles.iter().any(|name| name == role)
        };
        let all = of_files.chain(of_mounts).filter(of_role);
        all.map(|(path, _)| Place::of_main(&**path, Content::Declared))
            .collect()
    }
}

impl Validation for Capabilities {
    fn check(&self, job: &TrainingJob) -> Vec<FieldError> {
        review::check(&self.0, job)
    }
}

/// The usual DNS domain of a cluster.
const DEFAULT_DOMAIN: &str = "cluster.local";

fn volume(source: &MountSource, at: At<'_>, meter: &mut Meter) -> Option<Volume> {
    Some(match source {
        MountSource::EmptyDir(dir) => Volume {
            empty_dir: Some(EmptyDirVolumeSource {
                medium: (dir.medium == Some(Medium::Memory)).then(|| "Memory".to_owned()),
                size_limit: dir.size_limit.clone().map(Quantity),
            }),
            ..Volume::default()
        },
        MountSource::ConfigMap { name, optional } => Volume {
            config_map: Some(ConfigMapVolumeSource {
                name: at.value(name, meter)?.plain()?,
                optional: optional.then_some(true),
                ..ConfigMapVolumeSource::default()
            }),
            ..Volume::default()
        },
    })
}
