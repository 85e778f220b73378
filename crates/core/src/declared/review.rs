//! What is wrong with a job of a declared framework. Every expression is evaluated for every pod,
//! so that none fails when pods are created: now, and where the job may grow, at its largest size.

use std::collections::HashSet;

use trainyard_api::declaration::DeclaredService;
use trainyard_api::validate::domain_name_problem;
use trainyard_api::{FieldError, TrainingJob, names};

use super::{At, Condition, DEFAULT_DOMAIN, Declared, MountSource, VariableContent, params};
use crate::cel::{Expression, Meter, Pod, Subject, Value};
use crate::members::Members;

/// How many steps all expressions may take for all pods of a job: admission has to answer within a
/// second.
const STEPS_OF_JOB: u64 = 5_000_000;
/// A single variable can't be longer, Linux says.
const MAX_VARIABLE: usize = 131_071;
/// All variables of a pod: the API server takes no object of more than 1.5 MB.
const MAX_VARIABLES: usize = 524_288;
/// All files of a pod: they are annotations, which may have 256 KiB.
const MAX_FILES: usize = 131_072;
/// The most pods of a role that the schema allows.
const MAX_REPLICAS: i32 = 10_000;

/// Where what is wrong is told, unless the declaration says where.
const FRAMEWORK: &str = "spec.framework";

pub(super) fn check(declared: &Declared, job: &TrainingJob) -> Vec<FieldError> {
    let mut errors = params::check(&declared.params, &job.spec.framework.params);
    errors.extend(check_master(declared, job));
    if !errors.is_empty() || !has_known_roles(declared, job) {
        return errors;
    }
    let now = declared.subject(job, roles(job, None), DEFAULT_DOMAIN);
    let mut review = Review::new(&now, String::new(), errors);
    review.rules(declared);
    if review.errors.is_empty() {
        review.pods(declared, now.pods());
    }
    let mut errors = review.errors;
    for other in other_sizes(declared, job) {
        if errors.is_empty() {
            errors = other.check(declared, job);
        }
    }
    errors
}

/// The roles of a job and their pods: as many as the job is to have now, or those of another size.
fn roles<'a>(job: &'a TrainingJob, other: Option<&'a OtherSize>) -> impl Iterator<Item = (&'a str, Members)> {
    let roles = job.spec.roles.iter().enumerate();
    roles.map(move |(position, role)| {
        let members = match other {
            Some(other) if other.role == position => other.members.clone(),
            _ => Members::first(job.spec.replicas(position, role).min(MAX_REPLICAS)),
        };
        (&*role.name, members)
    })
}

/// The pods that the elastic role of a job may come to have without a change of the declaration or
/// of what the job says.
struct OtherSize {
    /// The position of the role.
    role: usize,
    members: Members,
    /// The first pod that differs from those of sizes that were reviewed before.
    from: i32,
}

/// The largest size, and where pods leave one by one, that with a gap.
fn other_sizes(declared: &Declared, job: &TrainingJob) -> Vec<OtherSize> {
    let Some((position, elastic)) = job.spec.elastic_role().zip(job.spec.elastic.as_ref()) else {
        return Vec::new();
    };
    let Some(role) = job.spec.roles.get(position) else {
        return Vec::new();
    };
    let most = job.spec.most_replicas(role).min(MAX_REPLICAS);
    let all = Members::first(most);
    let gap = all.without(|index| index == most - 2);
    let size = |members: Members, from| OtherSize {
        role: position,
        members,
        from,
    };
    let largest = (most > job.spec.replicas(position, role)).then(|| size(all, 0));
    // Rank 0 never leaves, so that two pods have no gap.
    let with_gap = (declared.resizes && most > elastic.min().max(2)).then(|| size(gap, most - 1));
    largest.into_iter().chain(with_gap).collect()
}

impl OtherSize {
    fn check(&self, declared: &Declared, job: &TrainingJob) -> Vec<FieldError> {
        let subject = declared.subject(job, roles(job, Some(self)), DEFAULT_DOMAIN);
        let role = job.spec.roles.get(self.role).map_or("", |role| &*role.name);
        let indices = self.members.format().unwrap_or_default();
        let mut review = Review::new(
            &subject,
            format!(" once {role} has the pods {indices}"),
            Vec::new(),
        );
        let differs = |(of, index): &(usize, i64)| {
            self.from == 0 || (subject.role_name(*of) == role && *index >= i64::from(self.from))
        };
        review.pods(declared, subject.pods().filter(differs));
        review.errors
    }
}

fn check_master(declared: &Declared, job: &TrainingJob) -> Option<FieldError> {
    let service = names::master_service(job.metadata.name.as_deref().unwrap_or_default());
    let is_long = declared.service == DeclaredService::Master && service.len() > names::MAX_NAME;
    let most = names::MAX_NAME;
    let problem = || format!("the Service name {service:?} is longer than {most} characters: shorten it");
    is_long.then(|| FieldError::new("metadata.name", problem()))
}

/// Returns true if expressions can be asked about the job; what else is wrong is told elsewhere.
fn has_known_roles(declared: &Declared, job: &TrainingJob) -> bool {
    let mut seen = HashSet::new();
    let is_known = |name: &String| declared.roles.is_empty() || declared.roles.contains(name);
    let roles = &job.spec.roles;
    !roles.is_empty()
        && roles
            .iter()
            .all(|role| is_known(&role.name) && seen.insert(&role.name))
}

struct Review<'a> {
    subject: &'a Subject,
    /// What size this is, for sentences. Empty: that of now.
    size: String,
    meter: Meter,
    /// The fields of the declaration of which an error was told.
    failed: HashSet<String>,
    errors: Vec<FieldError>,
}

impl<'a> Review<'a> {
    fn new(subject: &'a Subject, size: String, errors: Vec<FieldError>) -> Self {
        Self {
            subject,
            size,
            meter: Meter::new(STEPS_OF_JOB),
            failed: HashSet::new(),
            errors,
        }
    }

    fn rules(&mut self, declared: &Declared) {
        for (i, rule) in declared.rules.iter().enumerate() {
            match rule.condition.evaluate(self.subject, None, &mut self.meter) {
                Ok(Value::Bool(true)) => {}
                Ok(_) => self.errors.push(FieldError::new(&*rule.path, &*rule.message)),
                Err(fault) => {
                    let problem = format!("the framework's spec.validations[{i}].rule: {fault}");
                    self.errors.push(FieldError::new(&*rule.path, problem));
                    if self.meter.is_exhausted() {
                        return;
                    }
                }
            }
        }
    }

    fn pods(&mut self, declared: &Declared, pods: impl Iterator<Item = (usize, i64)>) {
        for (role, index) in pods {
            self.pod(declared, Pod { role, index });
            if self.meter.is_exhausted() {
                return;
            }
        }
    }

    fn pod(&mut self, declared: &Declared, pod: Pod) {
        let at = At {
            subject: self.subject,
            pod,
        };
        let mut total = 0;
        for (i, variable) in declared.variables.iter().enumerate() {
            let path = || format!("spec.env[{i}]");
            if !self.has(&path, at, &variable.condition) {
                continue;
            }
            if let VariableContent::Value(value) = &variable.content {
                let value = self.value(&|| format!("{}.value", path()), at, value);
                if let Some(Value::Text(text)) = &value
                    && text.contains('\0')
                {
                    let problem = format!(
                        "{} would have the character NUL, which no variable can have: remove it",
                        variable.name
                    );
                    self.fail(path(), at, &problem);
                }
                let length = value.map_or(0, |value| value.plain_length());
                total += length;
                if length + variable.name.len() + 1 > MAX_VARIABLE {
                    let problem = format!(
                        "{} would have {length} characters, and Linux starts no program with a variable of more than \
                         {MAX_VARIABLE}: use fewer pods, or a shorter name",
                        variable.name
                    );
                    self.fail(path(), at, &problem);
                }
            }
        }
        if total > MAX_VARIABLES {
            self.fail(
                "spec.env".to_owned(),
                at,
                "all variables together are too long: use fewer pods",
            );
        }
        self.ports(declared, at);
        self.files(declared, at);
    }

    fn ports(&mut self, declared: &Declared, at: At<'_>) {
        let mut has_port = false;
        for (i, port) in declared.ports.iter().enumerate() {
            let path = || format!("spec.ports[{i}]");
            if !self.has(&path, at, &port.condition) {
                continue;
            }
            has_port = true;
            if let Some(Value::Int(number)) = self.value(&|| format!("{}.number", path()), at, &port.number)
                && !(1..=65535).contains(&number)
            {
                self.fail(
                    path(),
                    at,
                    &format!("{number} is no port: ports are from 1 to 65535"),
                );
            }
        }
        let is_master = self.subject.pods().next() == Some((at.pod.role, at.pod.index));
        if is_master && !has_port && declared.service == DeclaredService::Master {
            let problem = "the Service Master leads to a port of this pod, the first of all, and no entry of spec.ports is \
                           for it: the Framework needs one";
            self.fail("spec.service".to_owned(), at, problem);
        }
    }

    fn files(&mut self, declared: &Declared, at: At<'_>) {
        let mut total = 0;
        for (i, file) in declared.files.iter().enumerate() {
            let path = || format!("spec.files[{i}]");
            if self.has(&path, at, &file.condition) {
                let content = self.value(&|| format!("{}.content", path()), at, &file.content);
                total += content.map_or(0, |value| value.plain_length());
            }
        }
        if total > MAX_FILES {
            let problem =
                format!("all files of a pod together have more than {MAX_FILES} bytes: use fewer pods");
            self.fail("spec.files".to_owned(), at, &problem);
        }
        for (i, mount) in declared.mounts.iter().enumerate() {
            let path = || format!("spec.mounts[{i}]");
            if self.has(&path, at, &mount.condition)
                && let MountSource::ConfigMap { name, .. } = &mount.source
                && let Some(Value::Text(name)) = self.value(&path, at, name)
                && let Some(problem) = domain_name_problem(&name)
            {
                self.fail(path(), at, &format!("the name {name:?} of a ConfigMap {problem}"));
            }
        }
    }

    fn has(&mut self, path: &dyn Fn() -> String, at: At<'_>, condition: &Condition) -> bool {
        if let Err(fault) = self.meter.spend(1 + condition.roles.len()) {
            self.fail(path(), at, &fault.to_string());
            return false;
        }
        let role = self.subject.role_name(at.pod.role);
        let has_role = condition.roles.is_empty() || condition.roles.iter().any(|name| name == role);
        has_role
            && condition.when.as_ref().is_none_or(|when| {
                self.value(&|| format!("{}.when", path()), at, when) == Some(Value::Bool(true))
            })
    }

    fn value(&mut self, path: &dyn Fn() -> String, at: At<'_>, expression: &Expression) -> Option<Value> {
        match expression.evaluate(self.subject, Some(at.pod), &mut self.meter) {
            Ok(value) => Some(value),
            Err(fault) => {
                self.fail(path(), at, &fault.to_string());
                None
            }
        }
    }

    /// Tells what is wrong for a pod, once for each field of the declaration. What took too long is
    /// told once: all that comes after it would take too long, too.
    fn fail(&mut self, path: String, at: At<'_>, problem: &str) {
        if self.failed.contains(&path) || (self.meter.is_exhausted() && !self.errors.is_empty()) {
            return;
        }
        let (role, index) = (self.subject.role_name(at.pod.role), at.pod.index);
        let message = format!(
            "the framework's {path} fails for {role}-{index}{}: {problem}",
            self.size
        );
        self.failed.insert(path);
        self.errors.push(FieldError::new(FRAMEWORK, message));
    }
}
