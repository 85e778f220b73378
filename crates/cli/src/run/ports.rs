//! Ports of pods that are taken on the network of this machine.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};

use serde_json::Value;
use trainyard_api::TrainingJob;
use trainyard_core::build;
use trainyard_core::frameworks;
use trainyard_core::job::Job;
use trainyard_core::model::PodKey;
use trainyard_core::registry::Registry;
use trainyard_core::view::Settings;

/// No pod has this address. A program that listens on all addresses listens on this one, too.
const UNUSED_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 255, 255, 254);

/// A note about ports that other programs of this machine listen on.
pub fn note(job: &Value, registry: &Registry) -> Option<String> {
    let job: TrainingJob = serde_json::from_value(job.clone()).ok()?;
    let taken: Vec<String> = container_ports(&job, registry)
        .into_iter()
        .filter(|port| is_taken(*port))
        .map(|port| port.to_string())
        .collect();
    if taken.is_empty() {
        return None;
    }
    let words = if taken.len() == 1 { "port" } else { "ports" };
    let name = &job.spec.framework.name;
    let is_frameworks = frameworks::find(name).is_some_and(|framework| framework.ports.is_some());
    let how = if is_frameworks {
        format!(" (--set framework.{name}.port=PORT)")
    } else {
        String::new()
    };
    Some(format!(
        "another program of this machine listens on {words} {}, on every address, so that no pod can: end that program, or \
         give the job another port{how}",
        taken.join(", ")
    ))
}

/// The TCP ports of the job's containers. The first pod of a role has all ports of the role.
fn container_ports(job: &TrainingJob, registry: &Registry) -> BTreeSet<u16> {
    let mut job = job.clone();
    let frameworks = registry.for_job(&job);
    trainyard_core::admission::default_with(&mut job, &frameworks);
    let Ok(job) = Job::parse_with(&job, &frameworks) else {
        // An invalid job is reported elsewhere.
        return BTreeSet::new();
    };
    let pods = (0..job.roles.len())
        .filter_map(|role| build::pod(&job, &Settings::default(), PodKey { role, index: 0 }));
    let containers = pods.filter_map(|pod| pod.spec).flat_map(|spec| spec.containers);
    let ports = containers.flat_map(|container| container.ports.unwrap_or_default());
    ports
        .filter(|port| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP"))
        .filter_map(|port| u16::try_from(port.container_port).ok())
        .collect()
}

fn is_taken(port: u16) -> bool {
    let bound = TcpListener::bind((UNUSED_ADDRESS, port));
    bound.is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(port: u16) -> Value {
        let mut job = super::super::command::job(&["true".to_owned()], 2, "pytorch", "worker", None);
        job["spec"]["framework"]["pytorch"] = serde_json::json!({"port": port});
        job
    }

    #[test]
    fn a_port_is_taken_by_who_listens_everywhere() {
        let other = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = other.local_addr().unwrap().port();
        let said = note(&job(port), &Registry::default()).unwrap();
        assert!(said.contains(&format!("port {port},")), "{said}");
        drop(other);
        let other = TcpListener::bind(("127.0.0.1", port)).unwrap();
        assert_eq!(note(&job(port), &Registry::default()), None);
        drop(other);
    }

    #[test]
    fn ports_of_the_framework_are_known() {
        let job: TrainingJob = serde_json::from_value(job(4711)).unwrap();
        assert_eq!(
            container_ports(&job, &Registry::default()),
            BTreeSet::from([4711])
        );
    }
}
