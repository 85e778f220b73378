//! The downward API.

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use trainyard_api::quantity::Amount;

/// The value of a `fieldRef`.
pub fn of_pod(pod: &Pod, path: &str) -> Option<String> {
    let metadata = &pod.metadata;
    let spec = pod.spec.as_ref();
    let status = pod.status.as_ref();
    if let Some((map, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        let map = match map {
            "metadata.labels" => metadata.labels.as_ref(),
            "metadata.annotations" => metadata.annotations.as_ref(),
            _ => return None,
        };
        return Some(map.and_then(|map| map.get(key)).cloned().unwrap_or_default());
    }
    let lines = |map: Option<&std::collections::BTreeMap<String, String>>| {
        let lines: Vec<_> = map
            .into_iter()
            .flatten()
            .map(|(key, value)| format!("{key}={value:?}"))
            .collect();
        lines.join("\n")
    };
    Some(match path {
        "metadata.name" => metadata.name.clone().unwrap_or_default(),
        "metadata.namespace" => metadata.namespace.clone().unwrap_or_default(),
        "metadata.uid" => metadata.uid.clone().unwrap_or_default(),
        "metadata.labels" => lines(metadata.labels.as_ref()),
        "metadata.annotations" => lines(metadata.annotations.as_ref()),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
        "spec.serviceAccountName" => spec
            .and_then(|spec| spec.service_account_name.clone())
            .unwrap_or_default(),
        "status.hostIP" => status
            .and_then(|status| status.host_ip.clone())
            .unwrap_or_default(),
        "status.podIP" => status
            .and_then(|status| status.pod_ip.clone())
            .unwrap_or_default(),
        "status.hostIPs" => status
            .and_then(|status| status.host_ip.clone())
            .unwrap_or_default(),
        "status.podIPs" => status
            .and_then(|status| status.pod_ip.clone())
            .unwrap_or_default(),
        _ => return None,
    })
}

/// The value of a `resourceFieldRef`, divided and rounded up.
pub fn of_resources(pod: &Pod, own: &Container, field: &ResourceFieldSelector) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let container = match field.container_name.as_deref().filter(|name| !name.is_empty()) {
        None => own,
        Some(name) => spec.containers.iter().find(|container| container.name == name)?,
    };
    let (kind, name) = field.resource.split_once('.')?;
    let resources = container.resources.as_ref();
    let limits = resources.and_then(|resources| resources.limits.as_ref());
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    let found = match kind {
        // The default limit is the capacity of the node.
        "limits" => limits.and_then(|map| map.get(name)),
        "requests" => requests.and_then(|map| map.get(name)),
        _ => return None,
    };
    let value = match found {
        Some(quantity) => milli(quantity)?,
        None if kind == "requests" => 0,
        None if name == "cpu" => {
            i128::try_from(std::thread::available_parallelism().map_or(1, std::num::NonZero::get)).ok()?
                * 1000
        }
        None => 0,
    };
    let divisor = field
        .divisor
        .as_ref()
        .and_then(milli)
        .filter(|divisor| *divisor > 0)
        .unwrap_or(1000);
    Some((value + divisor - 1).div_euclid(divisor).to_string())
}

pub fn milli(quantity: &Quantity) -> Option<i128> {
    Amount::parse(quantity.0.trim()).map(Amount::thousandths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        for (text, wanted) in [
            ("1", 1000),
            ("500m", 500),
            ("0.5", 500),
            (".5", 500),
            ("1.5Gi", 1_610_612_736_000),
            ("2k", 2_000_000),
            ("1e3", 1_000_000),
            ("100u", 1),
            ("0", 0),
        ] {
            assert_eq!(milli(&Quantity(text.to_owned())), Some(wanted), "{text}");
        }
        assert_eq!(milli(&Quantity("x".to_owned())), None);
    }
}
