//! Host names and DNS of pods.

mod directory;
#[cfg(target_os = "linux")]
pub(crate) mod server;

use std::fs;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Pod;

pub(crate) use directory::is_ready;

/// The domain of the cluster.
pub const DOMAIN: &str = "cluster.local";

/// The host name of a pod.
pub fn hostname(pod: &Pod) -> String {
    let given = pod.spec.as_ref().and_then(|spec| spec.hostname.clone());
    let name = given.or(pod.metadata.name.clone()).unwrap_or_default();
    // The limit of the kernel.
    let mut name: String = name.chars().take(63).collect();
    name.truncate(name.trim_end_matches(['-', '.']).len());
    name
}

/// The DNS name of a pod, if it has one.
pub fn full_name(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let (hostname, subdomain) = (spec.hostname.as_ref()?, spec.subdomain.as_ref()?);
    let namespace = pod.metadata.namespace.as_ref()?;
    Some(format!("{hostname}.{subdomain}.{namespace}.svc.{DOMAIN}"))
}

/// The files in `/etc` of a pod.
pub fn files(pod: &Pod, address: Ipv4Addr, has_server: bool) -> Vec<(&'static str, String)> {
    let hostname = hostname(pod);
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let spec = pod.spec.as_ref();
    let subdomain = spec.and_then(|spec| spec.subdomain.as_deref());
    let own = subdomain.map_or_else(
        || hostname.clone(),
        |subdomain| format!("{hostname}.{subdomain}.{namespace}.svc.{DOMAIN}\t{hostname}"),
    );
    let mut hosts = format!(
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n{address}\t{own}\n"
    );
    for alias in spec.iter().flat_map(|spec| spec.host_aliases.iter().flatten()) {
        let names = alias.hostnames.clone().unwrap_or_default().join("\t");
        hosts.extend([alias.ip.as_str(), "\t", &names, "\n"]);
    }
    let mut files = vec![("hosts", hosts), ("hostname", format!("{hostname}\n"))];
    if has_server {
        let mut search = format!("{namespace}.svc.{DOMAIN} svc.{DOMAIN} {DOMAIN}");
        let config = spec.and_then(|spec| spec.dns_config.as_ref());
        for domain in config.iter().flat_map(|config| config.searches.iter().flatten()) {
            search.extend([" ", domain]);
        }
        let server = super::GATEWAY;
        files.push((
            "resolv.conf",
            format!("search {search}\nnameserver {server}\noptions ndots:5 timeout:2\n"),
        ));
        // The machine's name services are not reachable in the yard.
        if let Ok(switch) = fs::read_to_string("/etc/nsswitch.conf") {
            let lines = switch.lines().filter(|line| !line.starts_with("hosts:"));
            let mut switch: String = lines.flat_map(|line| [line, "\n"]).collect();
            switch.push_str("hosts: files dns\n");
            files.push(("nsswitch.conf", switch));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn domains_that_a_pod_asks_for_are_searched_after_the_clusters() {
        let pod = json!({
            "metadata": {"name": "a", "namespace": "team"},
            "spec": {"containers": [], "dnsConfig": {"searches": ["train.team.svc.cluster.local", "example.org"]}},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let files = files(&pod, Ipv4Addr::LOCALHOST, true);
        let (_, resolver) = files.iter().find(|(name, _)| *name == "resolv.conf").unwrap();
        let search = "search team.svc.cluster.local svc.cluster.local cluster.local train.team.svc.cluster.local example.org\n";
        assert!(resolver.starts_with(search), "{resolver}");
    }
}
