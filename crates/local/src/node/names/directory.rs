//! Resolves names of services and pods. Pure.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::DOMAIN;

/// All pods and services of the cluster.
#[derive(Debug, Default)]
pub struct Directory {
    pub pods: HashMap<String, Pod>,
    pub services: HashMap<(String, String), Service>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// A name of the cluster, with its addresses, if any.
    Known(Vec<Ipv4Addr>),
    Unknown,
}

impl Directory {
    pub fn resolve(&self, name: &str) -> Answer {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let Some(inner) = name.strip_suffix(&format!(".svc.{DOMAIN}")) else {
            return Answer::Unknown;
        };
        let parts: Vec<_> = inner.split('.').collect();
        let (host, service, namespace) = match parts[..] {
            [service, namespace] => (None, service, namespace),
            [host, service, namespace] => (Some(host), service, namespace),
            _ => return Answer::Unknown,
        };
        let Some(service) = self.services.get(&(namespace.to_owned(), service.to_owned())) else {
            return Answer::Unknown;
        };
        if let (None, Some(address)) = (host, cluster_address(service)) {
            return Answer::Known(vec![address]);
        }
        let mut addresses: Vec<_> = self
            .behind(service)
            .filter(|pod| host.is_none_or(|host| is_called(pod, host, service)))
            .filter_map(address)
            .collect();
        addresses.sort_unstable();
        if addresses.is_empty() && host.is_some() {
            return Answer::Unknown;
        }
        Answer::Known(addresses)
    }

    /// The pods that a service selects and that are ready, unless it publishes all.
    fn behind(&self, service: &Service) -> impl Iterator<Item = &Pod> {
        let spec = service.spec.clone().unwrap_or_default();
        let selector = spec.selector.filter(|selector| !selector.is_empty());
        let not_ready_too = spec.publish_not_ready_addresses == Some(true);
        let namespace = service.metadata.namespace.clone();
        self.pods.values().filter(move |pod| {
            let labels = pod.metadata.labels.as_ref();
            let has = |key: &String, value: &String| labels.and_then(|labels| labels.get(key)) == Some(value);
            pod.metadata.namespace == namespace
                && selector
                    .as_ref()
                    .is_some_and(|selector| selector.iter().all(|(key, value)| has(key, value)))
                && is_active(pod)
                && (not_ready_too || is_ready(pod))
        })
    }

    pub fn targets(&self, namespace: &str, name: &str, port: u16) -> Vec<(Ipv4Addr, u16)> {
        let Some(service) = self.services.get(&(namespace.to_owned(), name.to_owned())) else {
            return Vec::new();
        };
        let ports = service
            .spec
            .as_ref()
            .and_then(|spec| spec.ports.as_deref())
            .unwrap_or_default();
        let Some(found) = ports.iter().find(|known| known.port == i32::from(port)) else {
            return Vec::new();
        };
        let target = found.target_port.clone().unwrap_or(IntOrString::Int(found.port));
        let targets = self
            .behind(service)
            .filter_map(|pod| Some((address(pod)?, port_of(pod, &target)?)));
        let mut targets: Vec<_> = targets.collect();
        targets.sort_unstable();
        targets
    }
}

/// The cluster IP of a service.
pub fn cluster_address(service: &Service) -> Option<Ipv4Addr> {
    service.spec.as_ref()?.cluster_ip.as_ref()?.parse().ok()
}

fn address(pod: &Pod) -> Option<Ipv4Addr> {
    pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()
}

fn is_called(pod: &Pod, host: &str, service: &Service) -> bool {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.hostname.as_deref()) == Some(host)
        && spec.and_then(|spec| spec.subdomain.as_ref()) == service.metadata.name.as_ref()
}

fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Returns true if a pod is ready and stays.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let ready = conditions
        .iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    ready && pod.metadata.deletion_timestamp.is_none()
}

fn port_of(pod: &Pod, port: &IntOrString) -> Option<u16> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
            let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
            ports
                .find(|port| port.name.as_ref() == Some(name))?
                .container_port
        }
    };
    u16::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn directory() -> Directory {
        let mut directory = Directory::default();
        for (number, ready) in [(2, "True"), (3, "False")] {
            let pod = json!({
                "metadata": {"namespace": "ns", "name": format!("w{number}"), "labels": {"job": "a"}},
                "spec": {"hostname": format!("w{number}"), "subdomain": "job", "containers": [
                    {"name": "main", "ports": [{"name": "web", "containerPort": 8080}]},
                ]},
                "status": {"phase": "Running", "podIP": format!("10.88.0.{number}"), "conditions": [
                    {"type": "Ready", "status": ready},
                ]},
            });
            directory
                .pods
                .insert(number.to_string(), serde_json::from_value(pod).unwrap());
        }
        for (name, address, all) in [
            ("job", "None", true),
            ("ready", "None", false),
            ("web", "10.96.0.7", false),
        ] {
            let service = json!({
                "metadata": {"namespace": "ns", "name": name},
                "spec": {
                    "clusterIP": address, "publishNotReadyAddresses": all, "selector": {"job": "a"},
                    "ports": [{"port": 80, "targetPort": "web"}],
                },
            });
            let key = ("ns".to_owned(), name.to_owned());
            directory
                .services
                .insert(key, serde_json::from_value(service).unwrap());
        }
        directory
    }

    #[test]
    fn names_of_services_and_pods() {
        let directory = directory();
        let [two, three] = [2, 3].map(|number| Ipv4Addr::new(10, 88, 0, number));
        for (name, wanted) in [
            ("job.ns.svc.cluster.local", Answer::Known(vec![two, three])),
            ("ready.ns.svc.cluster.local.", Answer::Known(vec![two])),
            (
                "web.ns.svc.cluster.local",
                Answer::Known(vec![Ipv4Addr::new(10, 96, 0, 7)]),
            ),
            ("W3.job.ns.svc.cluster.local", Answer::Known(vec![three])),
            ("w3.ready.ns.svc.cluster.local", Answer::Unknown),
            ("w9.job.ns.svc.cluster.local", Answer::Unknown),
            ("job.other.svc.cluster.local", Answer::Unknown),
            ("example.com", Answer::Unknown),
        ] {
            assert_eq!(directory.resolve(name), wanted, "{name}");
        }
        assert_eq!(directory.targets("ns", "web", 80), [(two, 8080)]);
        assert_eq!(directory.targets("ns", "web", 81), []);
    }
}
