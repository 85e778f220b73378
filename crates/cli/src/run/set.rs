//! `--set path=value`: changes one field of a manifest.
//!
//! A path is written as the field is named in messages, without `spec` in front:
//! `roles.worker.replicas`, `roles[0].replicas`, `metadata.labels.team`. Items of lists go by their
//! name or their position. The schema says which fields exist and whether `4` is a number or a
//! text.

use serde_json::{Map, Value, json};

use super::command::escape_dollars;
use crate::validate::schema;

/// Changes a field. The error says which part of the path does not exist, and what does.
pub fn set(job: &mut Value, schema: &Value, path: &str, value: &str) -> Result<(), String> {
    let mut parts = split(path)?;
    if !matches!(parts.first().map(String::as_str), Some("spec" | "metadata")) {
        parts.insert(0, "spec".to_owned());
    }
    let mut walk = Walk {
        parts: &parts,
        raw: value,
        depth: 0,
    };
    walk.step(job, schema)
        .map_err(|error| format!("--set {path}={value}: {error}"))
}

/// Sets an environment variable of every container of every role, to this very value.
pub fn set_env(job: &mut Value, name: &str, value: &str) {
    let roles = job.pointer_mut("/spec/roles").and_then(Value::as_array_mut);
    for role in roles.into_iter().flatten() {
        for list in ["initContainers", "containers"] {
            let containers = role.pointer_mut(&format!("/template/spec/{list}"));
            for container in containers
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
                .filter_map(Value::as_object_mut)
            {
                let env = container.entry("env").or_insert_with(|| json!([]));
                if let Some(env) = env.as_array_mut() {
                    env.retain(|var| var.get("name").and_then(Value::as_str) != Some(name));
                    env.push(json!({"name": name, "value": escape_dollars(value)}));
                }
            }
        }
    }
}

/// The parts of a path: separated by dots, or in brackets; a backslash takes the next character as
/// it is.
fn split(path: &str) -> Result<Vec<String>, String> {
    let mut parts = vec![String::new()];
    let mut chars = path.chars();
    while let Some(c) = chars.next() {
        match (c, parts.last_mut()) {
            ('.' | '[', Some(last)) if !last.is_empty() => parts.push(String::new()),
            ('[' | ']', _) => {}
            ('\\', Some(last)) => last.extend(chars.next()),
            (c, Some(last)) if c != '.' => last.push(c),
            _ => return Err(format!("--set {path}: there is an empty part in the path")),
        }
    }
    if parts.last().is_some_and(String::is_empty) {
        return Err(format!("--set {path}: the path ends with nothing"));
    }
    Ok(parts)
}

/// The descent along a path.
struct Walk<'a> {
    parts: &'a [String],
    raw: &'a str,
    depth: usize,
}

impl Walk<'_> {
    fn step(&mut self, value: &mut Value, schema: &Value) -> Result<(), String> {
        let Some(part) = self.parts.get(self.depth) else {
            *value = self.value(schema)?;
            return Ok(());
        };
        if let Some(items) = schema.get("items") {
            return self.item(value, items, part);
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        let others = schema
            .get("additionalProperties")
            .filter(|others| others.is_object());
        let open = schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
        let scalar = !matches!(schema.get("type").and_then(Value::as_str), None | Some("object"));
        let anything = Value::Object(Map::new());
        let next = match properties.and_then(|properties| properties.get(part)) {
            Some(next) => next,
            None if scalar => return Err(format!("{} is a value and has no fields", self.location())),
            None => match (others, properties) {
                (Some(others), _) => others,
                (None, Some(properties)) if !open => return Err(self.missing(part, properties)),
                _ => &anything,
            },
        };
        if value.is_null() {
            *value = json!({});
        }
        let Some(object) = value.as_object_mut() else {
            return Err(format!("{} has no fields in the manifest", self.location()));
        };
        self.depth += 1;
        if self.raw == "null" && self.depth == self.parts.len() {
            object.remove(part);
            return Ok(());
        }
        self.step(object.entry(part.as_str()).or_insert(Value::Null), next)
    }

    fn item(&mut self, value: &mut Value, items: &Value, part: &str) -> Result<(), String> {
        if value.is_null() {
            *value = json!([]);
        }
        let Some(list) = value.as_array_mut() else {
            return Err(format!("{} is no list in the manifest", self.location()));
        };
        let name = |item: &Value| item.get("name").and_then(Value::as_str).map(ToOwned::to_owned);
        let names: Vec<String> = list.iter().filter_map(name).collect();
        let position = list
            .iter()
            .position(|item| name(item).as_deref() == Some(part))
            .or_else(|| part.parse().ok().filter(|position| *position < list.len()));
        // A new name adds an environment variable; in other lists it is most likely a typo.
        let position = match position {
            None if self.depth > 0 && self.parts[self.depth - 1] == "env" => {
                list.push(json!({"name": part}));
                list.len() - 1
            }
            None => {
                let there = match (names.is_empty(), list.len()) {
                    (false, _) => format!("there are {}", names.join(", ")),
                    (true, 0) => "it is empty".to_owned(),
                    (true, n) => format!("there are items 0 to {}", n - 1),
                };
                return Err(format!("there is no {part:?} in {}: {there}", self.location()));
            }
            Some(position) => position,
        };
        self.depth += 1;
        if self.raw == "null" && self.depth == self.parts.len() {
            list.remove(position);
            return Ok(());
        }
        match list.get_mut(position) {
            Some(item) => self.step(item, items),
            None => Err(format!("there is no {part:?} in {}", self.location())),
        }
    }

    fn missing(&self, part: &str, properties: &Map<String, Value>) -> String {
        let known: Vec<&str> = properties.keys().map(String::as_str).collect();
        let problem = schema::unknown(part, properties.keys());
        match problem.split_once("did you mean") {
            Some((_, guess)) => format!("there is no {part:?} in {}: did you mean{guess}", self.location()),
            None => format!(
                "there is no {part:?} in {}: there are {}",
                self.location(),
                known.join(", ")
            ),
        }
    }

    /// The part of the path that exists, for messages.
    fn location(&self) -> String {
        match self.depth {
            0 => "the job".to_owned(),
            depth => self.parts[..depth].join("."),
        }
    }

    /// The value in the type of its field.
    fn value(&self, schema: &Value) -> Result<Value, String> {
        // Metadata is set as text: labels and annotations above all. Our schema does not describe
        // it.
        let metadata = self.parts.first().is_some_and(|part| part == "metadata");
        if metadata || schema.get("type").and_then(Value::as_str) == Some("string") {
            return Ok(Value::String(self.raw.to_owned()));
        }
        serde_saphyr::from_str(self.raw).map_err(|error| format!("the value is no valid YAML: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::validate::checker::Checker;

    fn job() -> Value {
        json!({
            "metadata": {"name": "mnist"},
            "spec": {
                "framework": {"name": "pytorch"},
                "roles": [
                    {"name": "master", "template": {"spec": {"containers": [{"name": "a"}]}}},
                    {"name": "worker", "replicas": 2, "template": {"spec": {"containers": [
                        {"name": "train", "command": ["python3", "train.py"]},
                        {"name": "side", "env": [{"name": "A", "value": "1"}]},
                    ]}}},
                ],
            },
        })
    }

    fn changed(path: &str, value: &str) -> Result<Value, String> {
        // The schema is large, and the same for all.
        static CHECKER: LazyLock<Checker> = LazyLock::new(|| Checker::new().unwrap());
        let mut job = job();
        set(&mut job, CHECKER.schema(), path, value).map(|()| job)
    }

    fn at(path: &str, value: &str, pointer: &str) -> Value {
        changed(path, value)
            .unwrap()
            .pointer(pointer)
            .cloned()
            .unwrap_or_default()
    }

    #[test]
    fn roles_go_by_name_or_position() {
        for path in [
            "roles.worker.replicas",
            "spec.roles.worker.replicas",
            "spec.roles[1].replicas",
            "roles[worker].replicas",
            "roles.1.replicas",
        ] {
            assert_eq!(at(path, "4", "/spec/roles/1/replicas"), json!(4), "{path}");
        }
    }

    #[test]
    fn what_is_not_there_yet_is_made() {
        assert_eq!(
            at("runPolicy.backoffLimit", "0", "/spec/runPolicy/backoffLimit"),
            json!(0)
        );
        assert_eq!(at("suspend", "true", "/spec/suspend"), json!(true));
        assert_eq!(
            at("metadata.labels.team", "a", "/metadata/labels/team"),
            json!("a")
        );
        let path = "roles.worker.template.metadata.labels.app\\.kubernetes\\.io/name";
        let pointer = "/spec/roles/1/template/metadata/labels/app.kubernetes.io~1name";
        assert_eq!(at(path, "7", pointer), json!("7"));
    }

    #[test]
    fn the_schema_says_what_is_text() {
        let pointer = "/spec/roles/1/template/spec/containers/1/env/0/value";
        let path = "roles.worker.template.spec.containers.side.env.A.value";
        assert_eq!(at(path, "4", pointer), json!("4"));
        assert_eq!(at(path, "a=b: c", pointer), json!("a=b: c"));
        let command = "/spec/roles/1/template/spec/containers/0/command";
        let path = "roles.worker.template.spec.containers.train.command";
        assert_eq!(
            at(path, "[sh, -c, 'exit 3']", command),
            json!(["sh", "-c", "exit 3"])
        );
        assert_eq!(
            at(&format!("{path}[1]"), "eval.py", command),
            json!(["python3", "eval.py"])
        );
    }

    #[test]
    fn variables_are_added() {
        let path = "roles.worker.template.spec.containers.side.env.B.value";
        let env = "/spec/roles/1/template/spec/containers/1/env";
        let both = json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]);
        assert_eq!(at(path, "2", env), both);
    }

    #[test]
    fn null_removes() {
        let job = changed("roles.worker.replicas", "null").unwrap();
        assert_eq!(job.pointer("/spec/roles/1/replicas"), None);
        for path in ["roles[0]", "roles.master"] {
            let roles = at(path, "null", "/spec/roles");
            assert_eq!(
                (roles.as_array().unwrap().len(), &roles[0]["name"]),
                (1, &json!("worker"))
            );
        }
        let command = "roles.worker.template.spec.containers.train.command";
        let left = at(
            &format!("{command}[1]"),
            "null",
            "/spec/roles/1/template/spec/containers/0/command",
        );
        assert_eq!(left, json!(["python3"]));
        assert!(
            changed("roles.none", "null")
                .unwrap_err()
                .contains("there are master, worker")
        );
    }

    #[test]
    fn the_part_that_does_not_exist_is_named_and_what_does() {
        let refused = |path: &str| changed(path, "4").unwrap_err();
        assert_eq!(
            refused("roles.wroker.replicas"),
            "--set roles.wroker.replicas=4: there is no \"wroker\" in spec.roles: there are master, worker"
        );
        assert_eq!(
            refused("roles.worker.replicsa"),
            "--set roles.worker.replicsa=4: there is no \"replicsa\" in spec.roles.worker: did you mean \"replicas\"?"
        );
        let found = refused("zzz.a");
        assert!(
            found.contains("no \"zzz\" in spec: there are completion, dialect, elastic, framework, "),
            "{found}"
        );
        assert!(
            refused("roles.worker.replicas.x")
                .ends_with("spec.roles.worker.replicas is a value and has no fields")
        );
        assert!(refused("roles.worker.template.spec.volumes.data.name").ends_with("it is empty"));
        assert!(refused("roles.worker.template.spec.containers.train.command[7]").ends_with("items 0 to 1"));
        assert!(refused("roles..replicas").contains("empty part"));
        assert!(refused("roles.").contains("ends with nothing"));
        assert!(
            changed("runPolicy", "{a: [")
                .unwrap_err()
                .contains("no valid YAML")
        );
    }

    #[test]
    fn a_variable_for_all_containers_replaces_the_one_that_is_there() {
        let mut job = job();
        set_env(&mut job, "A", "$(B)");
        for pointer in ["/spec/roles/0", "/spec/roles/1"] {
            for container in job.pointer(pointer).unwrap()["template"]["spec"]["containers"]
                .as_array()
                .unwrap()
            {
                assert_eq!(container["env"], json!([{"name": "A", "value": "$$(B)"}]));
            }
        }
    }
}
