//! Validation of pods.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::api::error::FieldError;
use crate::api::meta::{is_label, is_subdomain};
use crate::api::store::Object;

type Members = Map<String, Value>;

pub(super) fn spec(object: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let empty = Map::new();
    let spec = object.get("spec").and_then(Value::as_object).unwrap_or(&empty);
    let volumes = volumes(spec, &mut errors);
    let mut names = BTreeSet::new();
    let mut count = 0;
    for (list, init) in [("containers", false), ("initContainers", true)] {
        for (at, container) in items(spec, list) {
            let path = format!("spec.{list}[{at}]");
            check_container(container, &path, init, &volumes, &mut errors);
            let name = text(container, "name");
            if !name.is_empty() && !names.insert(name) {
                errors.push(FieldError::duplicate(format!("{path}.name"), &name.into()));
            }
            count += usize::from(!init);
        }
    }
    if count == 0 {
        errors.push(FieldError::required("spec.containers", ""));
    }
    one_of(
        spec,
        "spec",
        "restartPolicy",
        &["Always", "OnFailure", "Never"],
        &mut errors,
    );
    one_of(
        spec,
        "spec",
        "dnsPolicy",
        &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"],
        &mut errors,
    );
    at_least(spec, "spec", "activeDeadlineSeconds", 1, &mut errors);
    at_least(spec, "spec", "terminationGracePeriodSeconds", 0, &mut errors);
    for name in ["hostname", "subdomain"] {
        let value = text(spec, name);
        if !value.is_empty() && !is_label(value) {
            errors.push(FieldError::invalid(
                format!("spec.{name}"),
                &value.into(),
                "must be a lowercase RFC 1123 label",
            ));
        }
    }
    for name in ["nodeName", "serviceAccountName", "priorityClassName"] {
        let value = text(spec, name);
        if !value.is_empty() && !is_subdomain(value) {
            let why = "must be a lowercase RFC 1123 subdomain";
            errors.push(FieldError::invalid(format!("spec.{name}"), &value.into(), why));
        }
    }
    let gated = spec
        .get("schedulingGates")
        .and_then(Value::as_array)
        .is_some_and(|gates| !gates.is_empty());
    if gated && !text(spec, "nodeName").is_empty() {
        let why = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden("spec.nodeName", why));
    }
    errors
}

fn volumes<'a>(spec: &'a Members, errors: &mut Vec<FieldError>) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for (at, volume) in items(spec, "volumes") {
        let path = format!("spec.volumes[{at}]");
        let name = text(volume, "name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else if !is_label(name) {
            let why = "must be a lowercase RFC 1123 label";
            errors.push(FieldError::invalid(format!("{path}.name"), &name.into(), why));
        } else if !names.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &name.into()));
        }
        let sources: Vec<&String> = volume.keys().filter(|key| *key != "name").collect();
        if let [_, second, ..] = sources.as_slice() {
            let why = "may not specify more than 1 volume type";
            errors.push(FieldError::forbidden(format!("{path}.{second}"), why));
        }
        for (source, member) in [
            ("hostPath", "path"),
            ("persistentVolumeClaim", "claimName"),
            ("secret", "secretName"),
        ] {
            if volume
                .get(source)
                .and_then(Value::as_object)
                .is_some_and(|source| text(source, member).is_empty())
            {
                errors.push(FieldError::required(format!("{path}.{source}.{member}"), ""));
            }
        }
    }
    names
}

fn check_container(
    container: &Members,
    path: &str,
    init: bool,
    volumes: &BTreeSet<&str>,
    errors: &mut Vec<FieldError>,
) {
    let name = text(container, "name");
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    } else if !is_label(name) {
        let why = "must be a lowercase RFC 1123 label";
        errors.push(FieldError::invalid(format!("{path}.name"), &name.into(), why));
    }
    if text(container, "image").trim().is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    }
    one_of(
        container,
        path,
        "imagePullPolicy",
        &["Always", "IfNotPresent", "Never"],
        errors,
    );
    one_of(
        container,
        path,
        "terminationMessagePolicy",
        &["FallbackToLogsOnError", "File"],
        errors,
    );
    let sidecar = text(container, "restartPolicy") == "Always";
    if init && !sidecar {
        for member in ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle"] {
            if container.contains_key(member) {
                let why = "may not be set for init containers without restartPolicy=Always";
                errors.push(FieldError::forbidden(format!("{path}.{member}"), why));
            }
        }
    }
    check_variables(container, path, errors);
    check_ports(container, path, errors);
    check_mounts(container, path, volumes, errors);
    check_probes(container, path, errors);
}

fn check_variables(container: &Members, path: &str, errors: &mut Vec<FieldError>) {
    for (at, variable) in items(container, "env") {
        let path = format!("{path}.env[{at}]");
        let name = text(variable, "name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else if name.contains('=')
            || !name
                .chars()
                .all(|sign| sign.is_ascii() && !sign.is_ascii_control())
        {
            let why = "a valid environment variable name consists only of printable ASCII characters other than '='";
            errors.push(FieldError::invalid(format!("{path}.name"), &name.into(), why));
        }
        let Some(from) = variable.get("valueFrom").and_then(Value::as_object) else {
            continue;
        };
        if !text(variable, "value").is_empty() {
            let why = "may not be specified when `value` is not empty";
            errors.push(FieldError::invalid(format!("{path}.valueFrom"), &"".into(), why));
        }
        if from.len() != 1 {
            let why = if from.is_empty() {
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
            } else {
                "may not have more than one field specified at a time"
            };
            errors.push(FieldError::invalid(format!("{path}.valueFrom"), &"".into(), why));
        }
    }
}

fn check_ports(container: &Members, path: &str, errors: &mut Vec<FieldError>) {
    let mut names = BTreeSet::new();
    for (at, port) in items(container, "ports") {
        let path = format!("{path}.ports[{at}]");
        for member in ["containerPort", "hostPort"] {
            match port.get(member).and_then(Value::as_i64) {
                Some(number) if !(1..=65535).contains(&number) => {
                    let why = "must be between 1 and 65535, inclusive";
                    errors.push(FieldError::invalid(
                        format!("{path}.{member}"),
                        &number.into(),
                        why,
                    ));
                }
                None if member == "containerPort" => {
                    errors.push(FieldError::required(format!("{path}.{member}"), ""));
                }
                _ => {}
            }
        }
        one_of(port, &path, "protocol", &["SCTP", "TCP", "UDP"], errors);
        let name = text(port, "name");
        if !name.is_empty() && !names.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &name.into()));
        }
    }
}

fn check_mounts(container: &Members, path: &str, volumes: &BTreeSet<&str>, errors: &mut Vec<FieldError>) {
    let mut paths = BTreeSet::new();
    for (at, mount) in items(container, "volumeMounts") {
        let path = format!("{path}.volumeMounts[{at}]");
        let name = text(mount, "name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else if !volumes.contains(name) {
            errors.push(FieldError::not_found(format!("{path}.name"), &name.into()));
        }
        let place = text(mount, "mountPath");
        if place.is_empty() {
            errors.push(FieldError::required(format!("{path}.mountPath"), ""));
        } else if !paths.insert(place) {
            let why = "must be unique";
            errors.push(FieldError::invalid(
                format!("{path}.mountPath"),
                &place.into(),
                why,
            ));
        }
    }
}

fn check_probes(container: &Members, path: &str, errors: &mut Vec<FieldError>) {
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get(name).and_then(Value::as_object) else {
            continue;
        };
        let path = format!("{path}.{name}");
        let handlers = ["exec", "httpGet", "tcpSocket", "grpc"];
        match handlers
            .iter()
            .filter(|handler| probe.contains_key(**handler))
            .count()
        {
            0 => errors.push(FieldError::required(&path, "must specify a handler type")),
            1 => {}
            _ => errors.push(FieldError::forbidden(
                &path,
                "may not specify more than 1 handler type",
            )),
        }
        for member in [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ] {
            at_least(probe, &path, member, 0, errors);
        }
        let successes = probe.get("successThreshold").and_then(Value::as_i64);
        if name != "readinessProbe" && successes.is_some_and(|count| count != 1) {
            let value = successes.into();
            errors.push(FieldError::invalid(
                format!("{path}.successThreshold"),
                &value,
                "must be 1",
            ));
        }
    }
}

fn items<'a>(parent: &'a Members, list: &str) -> impl Iterator<Item = (usize, &'a Members)> {
    let items = parent.get(list).and_then(Value::as_array).into_iter().flatten();
    items
        .enumerate()
        .filter_map(|(at, item)| Some((at, item.as_object()?)))
}

fn text<'a>(members: &'a Members, name: &str) -> &'a str {
    members.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn one_of(members: &Members, path: &str, name: &str, possible: &[&str], errors: &mut Vec<FieldError>) {
    if let Some(value) = members.get(name)
        && !value.as_str().is_some_and(|value| possible.contains(&value))
    {
        errors.push(FieldError::unsupported(
            format!("{path}.{name}"),
            value,
            possible.iter().copied(),
        ));
    }
}

fn at_least(members: &Members, path: &str, name: &str, least: i64, errors: &mut Vec<FieldError>) {
    if let Some(value) = members
        .get(name)
        .and_then(Value::as_i64)
        .filter(|value| *value < least)
    {
        let why = format!("must be greater than or equal to {least}");
        errors.push(FieldError::invalid(format!("{path}.{name}"), &value.into(), &why));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[rstest::rstest]
    #[case(json!({"containers": [{"name": "a", "image": "x"}]}), &[])]
    #[case(json!({}), &["spec.containers"])]
    #[case(json!({"containers": [{"name": "A"}]}), &["spec.containers[0].name", "spec.containers[0].image"])]
    #[case(
        json!({"containers": [{"name": "a", "image": "x"}], "initContainers": [{"name": "a", "image": "x"}]}),
        &["spec.initContainers[0].name"]
    )]
    #[case(
        json!({"containers": [{"name": "a", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}),
        &["spec.containers[0].volumeMounts[0].name"]
    )]
    #[case(
        json!({"restartPolicy": "Sometimes", "containers": [{"name": "a", "image": "x", "ports": [{"containerPort": 0}]}]}),
        &["spec.containers[0].ports[0].containerPort", "spec.restartPolicy"]
    )]
    #[case(
        json!({"containers": [{"name": "a", "image": "x", "livenessProbe": {"periodSeconds": -1}}]}),
        &["spec.containers[0].livenessProbe", "spec.containers[0].livenessProbe.periodSeconds"]
    )]
    #[case(
        json!({"containers": [{"name": "a", "image": "x"}],
            "volumes": [{"name": "v", "emptyDir": {}, "secret": {"secretName": "s"}}]}),
        &["spec.volumes[0].secret"]
    )]
    fn what_is_wrong_is_found_where_it_is(#[case] pod_spec: Value, #[case] fields: &[&str]) {
        let pod = json!({"spec": pod_spec});
        let errors = spec(pod.as_object().unwrap());
        let found: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(found, fields, "{errors:?}");
    }
}
