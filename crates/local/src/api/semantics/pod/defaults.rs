//! Defaults of pods.

use serde_json::{Map, Value, json};

use crate::api::meta::member;
use crate::api::store::Object;

type Members = Map<String, Value>;

/// Sets the defaults that do not depend on other objects.
pub(super) fn fill(object: &mut Object) {
    let spec = member(object, "spec");
    for (name, value) in [
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
        ("terminationGracePeriodSeconds", json!(30)),
        ("enableServiceLinks", json!(true)),
    ] {
        spec.entry(name).or_insert(value);
    }
    // False is the default and is not written.
    for name in ["hostNetwork", "hostPID", "hostIPC"] {
        drop_if(spec, name, &Value::Bool(false));
    }
    let on_host = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for list in ["initContainers", "containers"] {
        each(spec, list, |container| fill_container(container, on_host));
    }
    each(spec, "volumes", fill_volume);
}

fn each(parent: &mut Members, list: &str, mut change: impl FnMut(&mut Members)) {
    let items = parent.get_mut(list).and_then(Value::as_array_mut);
    items
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
        .for_each(&mut change);
}

fn within(parent: &mut Members, name: &str, change: impl FnOnce(&mut Members)) {
    if let Some(child) = parent.get_mut(name).and_then(Value::as_object_mut) {
        change(child);
    }
}

fn set(members: &mut Members, name: &str, value: impl Into<Value>) {
    if !members.contains_key(name) {
        members.insert(name.to_owned(), value.into());
    }
}

fn drop_if(members: &mut Members, name: &str, value: &Value) {
    if members.get(name) == Some(value) {
        members.remove(name);
    }
}

fn fill_container(container: &mut Members, on_host: bool) {
    set(container, "terminationMessagePath", "/dev/termination-log");
    set(container, "terminationMessagePolicy", "File");
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let policy = if is_latest(image) {
        "Always"
    } else {
        "IfNotPresent"
    };
    set(container, "imagePullPolicy", policy);
    fill_resources(member(container, "resources"));
    each(container, "ports", |port| {
        set(port, "protocol", "TCP");
        if let (true, Some(number)) = (on_host, port.get("containerPort").cloned()) {
            set(port, "hostPort", number);
        }
    });
    for name in ["stdin", "stdinOnce", "tty"] {
        drop_if(container, name, &Value::Bool(false));
    }
    each(container, "volumeMounts", |mount| {
        drop_if(mount, "readOnly", &Value::Bool(false));
    });
    each(container, "env", |variable| {
        drop_if(variable, "value", &"".into());
        within(variable, "valueFrom", |from| {
            within(from, "fieldRef", |field| set(field, "apiVersion", "v1"));
        });
    });
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        within(container, probe, |probe| {
            fill_http(probe);
            within(probe, "grpc", |grpc| set(grpc, "service", ""));
            for (name, value) in [
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ] {
                if probe.get(name).is_none_or(|value| value.as_i64() == Some(0)) {
                    probe.insert(name.into(), value.into());
                }
            }
        });
    }
    within(container, "lifecycle", |lifecycle| {
        for hook in ["postStart", "preStop"] {
            within(lifecycle, hook, fill_http);
        }
    });
}

fn fill_http(handler: &mut Members) {
    within(handler, "httpGet", |get| {
        set(get, "path", "/");
        set(get, "scheme", "HTTP");
    });
}

/// A request defaults to the limit.
fn fill_resources(resources: &mut Members) {
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else {
        return;
    };
    let requests = member(resources, "requests");
    for (name, limit) in limits {
        set(requests, &name, limit);
    }
}

fn fill_volume(volume: &mut Members) {
    // A volume without a source is an emptyDir.
    if volume.keys().all(|name| name == "name") {
        volume.insert("emptyDir".into(), json!({}));
    }
    for source in ["configMap", "secret", "downwardAPI", "projected"] {
        within(volume, source, |source| set(source, "defaultMode", 0o644));
    }
    let fill_items = |source: &mut Members| {
        each(source, "items", |item| {
            within(item, "fieldRef", |field| set(field, "apiVersion", "v1"));
        });
    };
    within(volume, "downwardAPI", fill_items);
    within(volume, "projected", |projected| {
        each(projected, "sources", |source| {
            within(source, "downwardAPI", fill_items);
            within(source, "serviceAccountToken", |token| {
                set(token, "expirationSeconds", 3600);
            });
        });
    });
    within(volume, "hostPath", |path| set(path, "type", ""));
}

/// Whether an image has no tag, or `latest`.
fn is_latest(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let name = image.rsplit('/').next().unwrap_or(image);
    name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

/// Adds the default tolerations: five minutes on a node that is not ready.
pub(super) fn tolerate(object: &mut Object) {
    let spec = member(object, "spec");
    let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(tolerations) = tolerations.as_array_mut() else {
        return;
    };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covers = |toleration: &Value| {
            let has = |name: &str| toleration.get(name).and_then(Value::as_str).unwrap_or_default();
            (has("key") == key || has("key").is_empty()) && ["", "NoExecute"].contains(&has("effect"))
        };
        if !tolerations.iter().any(covers) {
            tolerations.push(json!(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            ));
        }
    }
}

/// The QoS class.
pub(super) fn quality(object: &Object) -> &'static str {
    let spec = object.get("spec");
    let list = |name: &str| {
        spec.and_then(|spec| spec.get(name)?.as_array())
            .into_iter()
            .flatten()
    };
    let mut any = false;
    let mut guaranteed = true;
    for container in list("containers").chain(list("initContainers")) {
        let amount = |of: &str, name: &str| container.pointer(&format!("/resources/{of}/{name}"));
        for name in ["cpu", "memory"] {
            let (request, limit) = (amount("requests", name), amount("limits", name));
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && request == limit;
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(spec: Value) -> Value {
        let mut object = Map::new();
        object.insert("spec".into(), spec);
        fill(&mut object);
        object.remove("spec").unwrap()
    }

    #[test]
    fn what_is_left_open_is_filled_in_and_what_is_given_stays() {
        let spec = filled(json!({
            "restartPolicy": "Never",
            "hostNetwork": false,
            "containers": [{
                "name": "a", "image": "x:1",
                "resources": {"limits": {"cpu": "1", "memory": "2"}, "requests": {"cpu": "0.5"}},
                "ports": [{"containerPort": 80}],
                "readinessProbe": {"httpGet": {"port": 80}, "periodSeconds": 5},
                "env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            }],
            "volumes": [{"name": "e"}, {"name": "c", "configMap": {"name": "c"}}],
        }));
        assert_eq!(spec["restartPolicy"], "Never");
        assert_eq!(spec.get("hostNetwork"), None);
        assert_eq!(
            (&spec["terminationGracePeriodSeconds"], &spec["dnsPolicy"]),
            (&json!(30), &json!("ClusterFirst"))
        );
        let container = &spec["containers"][0];
        assert_eq!(container["imagePullPolicy"], "IfNotPresent");
        assert_eq!(
            container["resources"]["requests"],
            json!({"cpu": "0.5", "memory": "2"})
        );
        assert_eq!(container["ports"][0]["protocol"], "TCP");
        assert_eq!(container["readinessProbe"]["periodSeconds"], 5);
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/");
        assert_eq!(container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"], "v1");
        assert_eq!(spec["volumes"][0]["emptyDir"], json!({}));
        assert_eq!(spec["volumes"][1]["configMap"]["defaultMode"], 420);
    }

    #[rstest::rstest]
    #[case("x", true)]
    #[case("x:latest", true)]
    #[case("host:5000/x", true)]
    #[case("host:5000/x:1", false)]
    #[case("x@sha256:0", false)]
    fn the_tag_that_moves_is_always_pulled(#[case] image: &str, #[case] latest: bool) {
        assert_eq!(is_latest(image), latest);
    }

    #[rstest::rstest]
    #[case(json!({}), "BestEffort")]
    #[case(json!({"requests": {"cpu": "1"}}), "Burstable")]
    #[case(json!({"limits": {"cpu": "1", "memory": "1"}, "requests": {"cpu": "1", "memory": "1"}}), "Guaranteed")]
    #[case(json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}), "Burstable")]
    fn the_class_follows_from_the_resources(#[case] resources: Value, #[case] class: &str) {
        let pod = json!({"spec": {"containers": [{"resources": resources}]}});
        assert_eq!(quality(pod.as_object().unwrap()), class);
    }

    #[test]
    fn a_toleration_of_ones_own_is_enough() {
        let mut pod = json!({"spec": {"tolerations": [{"operator": "Exists"}]}})
            .as_object()
            .unwrap()
            .clone();
        tolerate(&mut pod);
        assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 1);
        let mut pod = Map::new();
        tolerate(&mut pod);
        assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 2);
    }
}
