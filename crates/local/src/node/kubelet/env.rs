//! The environment of a container.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVar, Pod, Secret};

use super::fields;
use super::tokens::Tokens;

/// The ConfigMaps, Secrets and tokens of a pod.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    pub config_maps: BTreeMap<String, ConfigMap>,
    pub secrets: BTreeMap<String, Secret>,
    pub tokens: Tokens,
}

impl Configuration {
    fn config(&self, name: &str, key: &str) -> Result<String, Missing> {
        let map = self.config_maps.get(name);
        let map = map.ok_or_else(|| Missing(format!("configmap \"{name}\" not found")))?;
        let value = map.data.as_ref().and_then(|data| data.get(key));
        value.cloned().ok_or_else(|| {
            Missing(format!(
                "couldn't find key {key} in ConfigMap {}",
                path(map.metadata.namespace.as_deref(), name)
            ))
        })
    }

    fn secret(&self, name: &str, key: &str) -> Result<String, Missing> {
        let secret = self.secrets.get(name);
        let secret = secret.ok_or_else(|| Missing(format!("secret \"{name}\" not found")))?;
        let value = secret.data.as_ref().and_then(|data| data.get(key));
        let value = value.ok_or_else(|| {
            Missing(format!(
                "couldn't find key {key} in Secret {}",
                path(secret.metadata.namespace.as_deref(), name)
            ))
        })?;
        Ok(String::from_utf8_lossy(&value.0).into_owned())
    }
}

fn path(namespace: Option<&str>, name: &str) -> String {
    format!("{}/{name}", namespace.unwrap_or_default())
}

/// A missing source of the environment, in the words of the kubelet.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Missing(pub String);

/// The variables of a container that `$(NAME)` stands for, in order, each name once: those of
/// Services, and its own.
pub fn variables(
    pod: &Pod,
    container: &Container,
    configuration: &Configuration,
    of_services: &[(String, String)],
) -> Result<Vec<(String, String)>, Missing> {
    let mut made: Vec<(String, String)> = of_services.to_vec();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        if let Some(from) = &source.config_map_ref {
            match configuration.config_maps.get(&from.name) {
                Some(map) => {
                    for (key, value) in map.data.iter().flatten() {
                        put(&mut made, format!("{prefix}{key}"), value.clone());
                    }
                }
                None if from.optional == Some(true) => {}
                None => return Err(Missing(format!("configmap \"{}\" not found", from.name))),
            }
        }
        if let Some(from) = &source.secret_ref {
            match configuration.secrets.get(&from.name) {
                Some(secret) => {
                    for (key, value) in secret.data.iter().flatten() {
                        let value = String::from_utf8_lossy(&value.0).into_owned();
                        put(&mut made, format!("{prefix}{key}"), value);
                    }
                }
                None if from.optional == Some(true) => {}
                None => return Err(Missing(format!("secret \"{}\" not found", from.name))),
            }
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match &variable.value {
            Some(value) => Some(expand(value, &made)),
            None => sourced(pod, container, variable, configuration)?,
        };
        if let Some(value) = value {
            put(&mut made, variable.name.clone(), value);
        }
    }
    Ok(made)
}

fn sourced(
    pod: &Pod,
    container: &Container,
    variable: &EnvVar,
    configuration: &Configuration,
) -> Result<Option<String>, Missing> {
    let Some(source) = &variable.value_from else {
        return Ok(Some(String::new()));
    };
    let found = if let Some(field) = &source.field_ref {
        fields::of_pod(pod, &field.field_path)
            .ok_or_else(|| Missing(format!("unsupported fieldPath: {}", field.field_path)))
    } else if let Some(field) = &source.resource_field_ref {
        fields::of_resources(pod, container, field)
            .ok_or_else(|| Missing(format!("unsupported container resource: {}", field.resource)))
    } else if let Some(key) = &source.config_map_key_ref {
        match configuration.config(&key.name, &key.key) {
            Err(_) if key.optional == Some(true) => return Ok(None),
            other => other,
        }
    } else if let Some(key) = &source.secret_key_ref {
        match configuration.secret(&key.name, &key.key) {
            Err(_) if key.optional == Some(true) => return Ok(None),
            other => other,
        }
    } else {
        return Ok(None);
    };
    found.map(Some)
}

/// All variables that a program finds: those of the container, and those of the runtime that the
/// container does not set, for which `$(NAME)` does not stand.
pub fn with_runtime(
    of_runtime: Vec<(String, String)>,
    of_container: Vec<(String, String)>,
) -> Vec<(String, String)> {
    let mut made = of_runtime;
    for (name, value) in of_container {
        put(&mut made, name, value);
    }
    made
}

fn put(made: &mut Vec<(String, String)>, name: String, value: String) {
    match made.iter_mut().find(|(known, _)| *known == name) {
        Some(known) => known.1 = value,
        None => made.push((name, value)),
    }
}

/// Replaces `$(NAME)` by the variable's value, where there is one; `$$` is a dollar sign.
pub fn expand(text: &str, variables: &[(String, String)]) -> String {
    let mut made = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        made.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            made.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            let known = variables.iter().find(|(known, _)| known == name);
            made.push_str(&known.map_or_else(|| format!("$({name})"), |(_, value)| value.clone()));
            rest = after;
        } else {
            made.push('$');
        }
    }
    made.push_str(rest);
    made
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_variable_is_expanded_by_those_of_the_container_alone() {
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let container: Container = serde_json::from_value(json!({"name": "main", "env": [
            {"name": "DATA", "value": "$(HOME)/data"},
            {"name": "PATH", "value": "/opt/bin:$(PATH)"},
            {"name": "OUT", "value": "$(DATA):$(API)"},
        ]}))
        .unwrap();
        let of_services = [variable("API", "10.0.0.1")];
        let of_container = variables(
            &Pod::default(),
            &container,
            &Configuration::default(),
            &of_services,
        )
        .unwrap();
        assert_eq!(
            expand("$(HOME) $(OUT)", &of_container),
            "$(HOME) $(HOME)/data:10.0.0.1"
        );
        let of_runtime = vec![variable("PATH", "/bin"), variable("HOME", "/root")];
        let wanted = [
            variable("PATH", "/opt/bin:$(PATH)"),
            variable("HOME", "/root"),
            variable("API", "10.0.0.1"),
            variable("DATA", "$(HOME)/data"),
            variable("OUT", "$(HOME)/data:10.0.0.1"),
        ];
        assert_eq!(with_runtime(of_runtime, of_container), wanted);
    }

    #[test]
    fn expansion_is_that_of_kubernetes() {
        let variables = [
            ("A".to_owned(), "1".to_owned()),
            ("B".to_owned(), "x y".to_owned()),
        ];
        for (text, wanted) in [
            ("$(A)", "1"),
            ("<$(A)-$(B)>", "<1-x y>"),
            ("$(C)", "$(C)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$A", "$A"),
            ("$(A", "$(A"),
            ("a$", "a$"),
        ] {
            assert_eq!(expand(text, &variables), wanted, "{text}");
        }
    }
}
