//! Limits of containers. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::fields;
use crate::node::runtime::Limits;

/// The limits of a container; 0 means no limit, as in Kubernetes.
pub fn of(container: &Container) -> Limits {
    let resources = container.resources.as_ref();
    let limits = resources.and_then(|resources| resources.limits.as_ref());
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    Limits {
        millicpus: thousandths(limits, "cpu"),
        requested_millicpus: thousandths(requests, "cpu"),
        memory: thousandths(limits, "memory").map(|thousandths| thousandths / 1000),
    }
}

fn thousandths(resources: Option<&BTreeMap<String, Quantity>>, name: &str) -> Option<u64> {
    let found = resources?.get(name).and_then(fields::milli)?;
    u64::try_from(found).ok().filter(|found| *found > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quantities_become_numbers() {
        let of = |resources| {
            let container = json!({"name": "main", "resources": resources});
            super::of(&serde_json::from_value(container).unwrap())
        };
        let all =
            json!({"limits": {"cpu": "1.5", "memory": "64Mi"}, "requests": {"cpu": "250m", "memory": "1Mi"}});
        assert_eq!(
            of(all),
            Limits {
                millicpus: Some(1500),
                requested_millicpus: Some(250),
                memory: Some(64 << 20),
            }
        );
        assert_eq!(
            of(json!({"limits": {"cpu": "0", "memory": "0"}})),
            Limits::default()
        );
        assert_eq!(of(json!(null)), Limits::default());
    }
}
