//! Makes a framework of a declaration, or says all that is wrong with it.

use std::collections::HashSet;
use std::sync::Arc;

use trainyard_api::declaration::{
    self, DeclaredMount, DeclaredParam, DeclaredRole, DeclaredVariable, FrameworkDeclaration,
    MAX_DECLARATION, MAX_EXPRESSION, ParamType,
};
use trainyard_api::quantity::Amount;
use trainyard_api::validate::dns_label_problem;
use trainyard_api::{DeclaredFramework, FieldError, PodQuorum, RestartPolicy};

use super::{
    Capabilities, Condition, Declared, DeclaredFile, DeclaredPort, Mount, MountSource, Rule, Variable,
    VariableContent, params,
};
use crate::cel::{Checker, Expression, Problem, Type, Vocabulary};
use crate::job::{Elasticity, Framework, RoleRule};

/// Fields of a pod that a variable may hold.
const FIELD_PATHS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "status.hostIP",
    "status.podIP",
    "status.podIPs",
];

/// Directories that belong to the operator or to Kubernetes.
const TAKEN: &[&str] = &["/var/run/trainyard", "/var/run/secrets", "/proc", "/sys"];

/// The prefix of the operator's own variables.
const OWN_VARIABLES: &str = "TRAINYARD_";

/// Makes a framework of its declaration, or returns all that is wrong with it.
pub fn compile(object: &DeclaredFramework) -> Result<Framework, Vec<FieldError>> {
    let declaration = &object.spec;
    let mut reader = Reader::new(declaration);
    let name = object.metadata.name.as_deref().unwrap_or_default();
    reader.name(name);
    reader.sizes(declaration);
    reader.roles(&declaration.roles);
    reader.service(declaration);
    reader.params();
    let json = reader.json(declaration);
    let vocabulary = reader.vocabulary();
    let mut checker = Checker::new(&vocabulary);
    let declared = Declared {
        params: reader.params.clone(),
        roles: vocabulary.roles.clone(),
        resizes: declaration.resizes,
        service: declaration.service.unwrap_or_default(),
        variables: reader.variables(&mut checker, &declaration.env),
        reserved: reader.reserved(&declaration.reserved),
        ports: reader.ports(&mut checker, &declaration.ports),
        files: reader.files(&mut checker, &declaration.files),
        mounts: reader.mounts(&mut checker, &declaration.mounts),
        rules: reader.rules(&mut checker, &declaration.validations),
        kept: checker.kept(),
    };
    reader.paths(declaration);
    if !reader.errors.is_empty() {
        return Err(reader.errors);
    }
    let capabilities = Capabilities(Arc::new(declared));
    Ok(Framework {
        roles: declaration.roles.iter().map(role_rule).collect(),
        restart_policy: declaration.restart_policy.unwrap_or(RestartPolicy::OnFailure),
        trains_as_one: declaration.trains_as_one,
        resizes: declaration.resizes,
        elasticity: if declaration.resizes {
            Elasticity::Live
        } else {
            Elasticity::Rigid
        },
        has_service: declaration.service != Some(declaration::DeclaredService::None),
        ports: Some(Box::new(capabilities.clone())),
        files: Some(Box::new(capabilities.clone())),
        validation: Some(Box::new(capabilities.clone())),
        declaration: Some(json.into()),
        ..Framework::new(name.to_owned(), capabilities)
    })
}

fn role_rule(role: &DeclaredRole) -> RoleRule {
    RoleRule {
        name: role.name.clone().into(),
        is_required: role.required,
        max: role.max,
        restart_policy: role.restart_policy,
        depends_on: role.depends_on.clone(),
        succeeded_when: role.succeeded_when.unwrap_or(PodQuorum::AllPods),
        decides: role.decides,
        serves: role.serves,
        is_expendable: role.expendable,
    }
}

/// Reads a declaration and collects what is wrong with it.
struct Reader {
    errors: Vec<FieldError>,
    roles: Vec<String>,
    params: Vec<(String, DeclaredParam)>,
}

impl Reader {
    fn new(declaration: &FrameworkDeclaration) -> Self {
        let params = declaration.params.iter();
        Self {
            errors: Vec::new(),
            roles: declaration.roles.iter().map(|role| role.name.clone()).collect(),
            params: params
                .map(|(name, param)| (name.clone(), param.clone()))
                .collect(),
        }
    }

    fn vocabulary(&self) -> Vocabulary {
        let params = self.params.iter();
        Vocabulary {
            roles: self.roles.clone(),
            params: params
                .map(|(name, param)| (name.clone(), params::kind(param)))
                .collect(),
        }
    }

    fn fail(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.errors.push(FieldError::new(path, message));
    }

    fn name(&mut self, name: &str) {
        if let Some(problem) = dns_label_problem(name) {
            self.fail("metadata.name", format!("the framework's name {problem}"));
        }
    }

    /// The schema says the same; but not every declaration comes from an API server.
    fn sizes(&mut self, declaration: &FrameworkDeclaration) {
        let sizes = [
            ("roles", declaration.roles.len(), 16),
            ("params", declaration.params.len(), 32),
            ("env", declaration.env.len(), 64),
            ("reserved", declaration.reserved.len(), 64),
            ("ports", declaration.ports.len(), 16),
            ("files", declaration.files.len(), 16),
            ("mounts", declaration.mounts.len(), 16),
            ("validations", declaration.validations.len(), 32),
        ];
        for (field, size, most) in sizes.into_iter().filter(|(_, size, most)| size > most) {
            self.fail(
                format!("spec.{field}"),
                format!("{size} are given; at most {most} are possible"),
            );
        }
    }

    /// The declaration as jobs keep it.
    fn json(&mut self, declaration: &FrameworkDeclaration) -> String {
        let json = serde_json::to_string(declaration).unwrap_or_default();
        if json.len() > MAX_DECLARATION {
            let message = format!(
                "the declaration has {} bytes as JSON; at most {MAX_DECLARATION} are possible: shorten it",
                json.len()
            );
            self.fail("spec", message);
        }
        json
    }

    fn roles(&mut self, roles: &[DeclaredRole]) {
        let mut seen = HashSet::new();
        for (i, role) in roles.iter().enumerate() {
            let at = format!("spec.roles[{i}]");
            if let Some(problem) = dns_label_problem(&role.name).or_else(|| too_long(&role.name, 32)) {
                self.fail(format!("{at}.name"), format!("the role's name {problem}"));
            }
            if !seen.insert(&role.name) {
                let message = format!(
                    "there is a role {:?} already: give each role its own name",
                    role.name
                );
                self.fail(format!("{at}.name"), message);
            }
            if role.max.is_some_and(|max| max < 1) {
                self.fail(format!("{at}.max"), "give at least 1, or leave it out");
            }
            for (d, on) in role.depends_on.iter().enumerate() {
                let at = format!("{at}.dependsOn[{d}].role");
                if on.role == role.name {
                    self.fail(at, "a role can't wait for itself: name another");
                } else {
                    self.known_role(at, &on.role);
                }
            }
        }
        if !roles.is_empty() && roles.iter().all(|role| role.serves) {
            self.fail(
                "spec.roles",
                "all roles serve others: a job needs one that trains",
            );
        }
        let decides = roles.iter().any(|role| role.decides);
        for (i, role) in roles.iter().enumerate().filter(|(_, role)| role.expendable) {
            let problem = match (role.decides, decides) {
                (true, _) => "this role decides, so that a job can't go on without it: remove one of both",
                (_, false) => "no role decides, so that a job needs all of them: say which one decides",
                _ => continue,
            };
            self.fail(format!("spec.roles[{i}].expendable"), problem);
        }
        if let Some(role) = in_circle(roles) {
            let message = format!("{role:?} waits for itself through other roles: remove a dependency");
            self.fail("spec.roles", message);
        }
    }

    /// A Service with an address of its own leads to a port.
    fn service(&mut self, declaration: &FrameworkDeclaration) {
        let is_master = declaration.service == Some(declaration::DeclaredService::Master);
        if is_master && declaration.ports.is_empty() {
            let message = "Master is a Service in front of the first port of rank 0, and spec.ports is empty: add that \
                           port, or use Headless";
            self.fail("spec.service", message);
        }
    }

    fn known_role(&mut self, at: String, role: &str) {
        if !self.roles.is_empty() && !self.roles.iter().any(|known| known == role) {
            let message = format!(
                "there is no role {role:?}: spec.roles has {}",
                self.roles.join(", ")
            );
            self.fail(at, message);
        }
    }

    fn params(&mut self) {
        for (name, param) in self.params.clone() {
            let at = format!("spec.params.{name}");
            if !is_name(&name) {
                let message = "a param is named by letters, digits and '_', and begins with a letter: expressions say \
                               params.<name>";
                self.fail(&*at, message);
            }
            let is_number = param.kind == ParamType::Integer;
            if !is_number && (param.minimum.is_some() || param.maximum.is_some()) {
                self.fail(&*at, "minimum and maximum are for integers: remove them");
            }
            if param
                .minimum
                .zip(param.maximum)
                .is_some_and(|(least, most)| least > most)
            {
                self.fail(&*at, "minimum is more than maximum: no job could give it");
            }
            if param.kind != ParamType::String && !param.one_of.is_empty() {
                self.fail(format!("{at}.enum"), "this is for strings: remove it");
            }
            let problem = param
                .default
                .as_ref()
                .and_then(|default| params::read(&param, default).err());
            if let Some(problem) = problem {
                self.fail(format!("{at}.default"), problem);
            }
        }
    }

    fn expression(
        &mut self,
        at: &str,
        source: &str,
        check: impl FnOnce(&str) -> Result<Expression, Problem>,
        expected: &[Type],
    ) -> Option<Expression> {
        if source.len() > MAX_EXPRESSION {
            self.fail(
                at,
                format!("an expression has at most {MAX_EXPRESSION} characters: shorten it"),
            );
            return None;
        }
        match check(source) {
            Ok(expression) if expected.contains(expression.result()) => Some(expression),
            Ok(expression) => {
                let names: Vec<String> = expected.iter().map(ToString::to_string).collect();
                let hint = match expression.result() {
                    Type::List(_) | Type::Map(_) | Type::Any if expected.contains(&Type::Text) => {
                        ": write json(...) around it, or join(...) after a list"
                    }
                    _ => "",
                };
                let message = format!(
                    "it results in {}, and {} is expected{hint}",
                    expression.result(),
                    names.join(" or ")
                );
                self.fail(at, message);
                None
            }
            Err(problem) => {
                self.fail(at, problem.sentence(source));
                None
            }
        }
    }

    fn condition(
        &mut self,
        checker: &mut Checker<'_>,
        at: &str,
        roles: &[String],
        when: Option<&String>,
    ) -> Condition {
        for (r, role) in roles.iter().enumerate() {
            self.known_role(format!("{at}.roles[{r}]"), role);
        }
        let when = when.and_then(|when| {
            let check = |source: &str| checker.of_pod(source);
            self.expression(&format!("{at}.when"), when, check, &[Type::Bool])
        });
        Condition {
            roles: roles.to_vec(),
            when,
        }
    }

    fn variables(&mut self, checker: &mut Checker<'_>, env: &[DeclaredVariable]) -> Vec<Variable> {
        let mut variables = Vec::new();
        for (i, variable) in env.iter().enumerate() {
            let at = format!("spec.env[{i}]");
            self.variable_name(&at, variable, env.get(..i).unwrap_or_default());
            let condition = self.condition(checker, &at, &variable.roles, variable.when.as_ref());
            let content = match (&variable.value, &variable.field_path) {
                (Some(value), None) => {
                    let types = [Type::Text, Type::Int, Type::Bool];
                    let check = |source: &str| checker.of_pod(source);
                    let value = self.expression(&format!("{at}.value"), value, check, &types);
                    value.map(VariableContent::Value)
                }
                (None, Some(path)) => {
                    if !FIELD_PATHS.contains(&&**path) {
                        let message = format!("{path:?} is not possible: use {}", FIELD_PATHS.join(", "));
                        self.fail(format!("{at}.fieldPath"), message);
                    }
                    Some(VariableContent::Field(path.clone()))
                }
                _ => {
                    self.fail(&*at, "give either value or fieldPath");
                    None
                }
            };
            variables.extend(content.map(|content| Variable {
                name: variable.name.clone(),
                content,
                condition,
            }));
        }
        variables
    }

    fn variable_name(&mut self, at: &str, variable: &DeclaredVariable, before: &[DeclaredVariable]) {
        let name = &variable.name;
        let at = format!("{at}.name");
        if !is_name(name) || name.len() > 128 {
            let message =
                "a variable is named by at most 128 letters, digits and '_', and begins with no digit";
            self.fail(&*at, message);
        }
        if name.starts_with(OWN_VARIABLES) {
            let message = format!("names that begin with {OWN_VARIABLES} are the operator's: choose another");
            self.fail(&*at, message);
        }
        let is_always = |other: &DeclaredVariable| other.when.is_none() && other.roles.is_empty();
        if before.iter().any(|other| other.name == *name && is_always(other)) {
            let message = format!("{name} is set already for every pod: remove one, or say when each is set");
            self.fail(at, message);
        }
    }

    fn reserved(&mut self, reserved: &[String]) -> Vec<String> {
        for (i, name) in reserved.iter().enumerate() {
            if !is_name(name.strip_suffix('*').unwrap_or(name)) {
                let message = "this is no name of a variable, nor the beginning of one with '*' after it";
                self.fail(format!("spec.reserved[{i}]"), message);
            }
        }
        reserved.to_vec()
    }

    fn ports(&mut self, checker: &mut Checker<'_>, ports: &[declaration::DeclaredPort]) -> Vec<DeclaredPort> {
        let (mut read, mut seen) = (Vec::new(), HashSet::new());
        for (i, port) in ports.iter().enumerate() {
            let at = format!("spec.ports[{i}]");
            if let Some(problem) = port_name_problem(&port.name) {
                self.fail(format!("{at}.name"), problem);
            }
            if !seen.insert(&port.name) {
                self.fail(
                    format!("{at}.name"),
                    format!("there is a port {:?} already", port.name),
                );
            }
            let condition = self.condition(checker, &at, &port.roles, port.when.as_ref());
            let check = |source: &str| checker.of_pod(source);
            let number = self.expression(&format!("{at}.number"), &port.number, check, &[Type::Int]);
            read.extend(number.map(|number| DeclaredPort {
                name: port.name.clone(),
                number,
                condition,
            }));
        }
        read
    }

    fn files(&mut self, checker: &mut Checker<'_>, files: &[declaration::DeclaredFile]) -> Vec<DeclaredFile> {
        let mut read = Vec::new();
        for (i, file) in files.iter().enumerate() {
            let at = format!("spec.files[{i}]");
            let condition = self.condition(checker, &at, &file.roles, None);
            let check = |source: &str| checker.of_pod(source);
            let content = self.expression(&format!("{at}.content"), &file.content, check, &[Type::Text]);
            read.extend(content.map(|content| DeclaredFile {
                path: file.path.clone(),
                content,
                condition,
            }));
        }
        read
    }

    fn mounts(&mut self, checker: &mut Checker<'_>, mounts: &[DeclaredMount]) -> Vec<Mount> {
        let mut read = Vec::new();
        for (i, mount) in mounts.iter().enumerate() {
            let at = format!("spec.mounts[{i}]");
            let condition = self.condition(checker, &at, &mount.roles, None);
            let source = match (&mount.empty_dir, &mount.config_map) {
                (Some(dir), None) => {
                    let limit = dir.size_limit.as_deref();
                    if limit.is_some_and(|limit| Amount::parse(limit).is_none()) {
                        let at = format!("{at}.emptyDir.sizeLimit");
                        self.fail(at, "this is no amount: write it as 512Mi or 1Gi");
                    }
                    Some(MountSource::EmptyDir(dir.clone()))
                }
                (None, Some(map)) => {
                    let check = |source: &str| checker.of_pod(source);
                    let at = format!("{at}.configMap.name");
                    let name = self.expression(&at, &map.name, check, &[Type::Text]);
                    let optional = map.optional;
                    name.map(|name| MountSource::ConfigMap { name, optional })
                }
                _ => {
                    self.fail(&*at, "give either emptyDir or configMap");
                    None
                }
            };
            read.extend(source.map(|source| Mount {
                path: mount.path.clone(),
                source,
                condition,
            }));
        }
        read
    }

    fn rules(&mut self, checker: &mut Checker<'_>, rules: &[declaration::DeclaredRule]) -> Vec<Rule> {
        let mut read = Vec::new();
        for (i, rule) in rules.iter().enumerate() {
            let at = format!("spec.validations[{i}]");
            let path = rule.path.as_deref().unwrap_or("spec.framework");
            if path != "spec" && !path.starts_with("spec.") {
                let message = "this is no field of a job: write for example spec.framework.params.port";
                self.fail(format!("{at}.path"), message);
            }
            if rule.message.is_empty() {
                self.fail(format!("{at}.message"), "say what is wrong and what to do");
            }
            let check = |source: &str| checker.of_job(source);
            let expression = self.expression(&format!("{at}.rule"), &rule.rule, check, &[Type::Bool]);
            read.extend(expression.map(|condition| Rule {
                condition,
                message: rule.message.clone(),
                path: path.to_owned(),
            }));
        }
        read
    }

    /// Where files and directories are: nowhere twice, and not where somebody else's are.
    fn paths(&mut self, declaration: &FrameworkDeclaration) {
        let files = declaration.files.iter().enumerate();
        let files = files.map(|(i, file)| (format!("spec.files[{i}].path"), &*file.path));
        let mounts = declaration.mounts.iter().enumerate();
        let mounts = mounts.map(|(i, mount)| (format!("spec.mounts[{i}].path"), &*mount.path));
        let mut before: Vec<&str> = Vec::new();
        for (at, path) in files.chain(mounts) {
            let steps = path.strip_prefix('/').unwrap_or_default().split('/');
            if steps.clone().any(|step| matches!(step, "" | "." | "..")) {
                self.fail(
                    at,
                    "write a path from the root, without '.', '..' and '/' at the end",
                );
                continue;
            }
            let taken = TAKEN.iter().find(|taken| path.starts_with(**taken));
            if let Some(taken) = taken {
                self.fail(
                    &*at,
                    format!("{taken} is not for frameworks: choose another path"),
                );
            }
            let is_near = |other: &&&str| is_within(path, other) || is_within(other, path);
            if let Some(other) = before.iter().find(is_near) {
                self.fail(
                    at,
                    format!("{path} and {other} are inside of each other: choose another path"),
                );
            }
            before.push(path);
        }
    }
}

fn is_within(path: &str, directory: &str) -> bool {
    let rest = path.strip_prefix(directory);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(is_part)
}

fn too_long(name: &str, most: usize) -> Option<String> {
    (name.len() > most).then(|| format!("has more than {most} characters: shorten it"))
}

fn port_name_problem(name: &str) -> Option<&'static str> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let has_letter = name.chars().any(|c| c.is_ascii_lowercase());
    let fits = (1..=15).contains(&name.len()) && name.chars().all(is_part) && has_letter;
    let is_one = fits && !name.starts_with('-') && !name.ends_with('-') && !name.contains("--");
    (!is_one).then_some(
        "a port is named by at most 15 lower-case letters, digits and '-', with a letter, and without '-' at its ends",
    )
}

/// A role that waits for itself through others, if there is one.
fn in_circle(roles: &[DeclaredRole]) -> Option<&str> {
    let find = |name: &str| roles.iter().find(|role| role.name == name);
    roles.iter().find_map(|start| {
        let mut seen = HashSet::new();
        let mut next: Vec<&str> = start.depends_on.iter().map(|on| &*on.role).collect();
        while let Some(name) = next.pop() {
            if name == start.name {
                // One that names itself is told of where it does.
                let is_itself = start.depends_on.iter().any(|on| on.role == start.name);
                return (!is_itself).then_some(&*start.name);
            }
            if seen.insert(name) {
                next.extend(
                    find(name)
                        .into_iter()
                        .flat_map(|role| &role.depends_on)
                        .map(|on| &*on.role),
                );
            }
        }
        None
    })
}
