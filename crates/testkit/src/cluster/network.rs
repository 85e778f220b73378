//! The cluster's network: a namespace of its own without a way out, whose only link ends at the
//! host.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;
use trainyard_eventually::LOOK_INTERVAL;

use super::components::Component;
use super::control_plane::component;
use super::plan::{Addresses, NODES, Plan, SLOTS};
use crate::command::{run, words};

/// The name of the host's link at the cluster's end.
const UPLINK: &str = "host";

/// Takes a free slot by making its link between the host and the network namespace of the process
/// `pid`.
pub fn take_slot(pid: u32) -> Result<Addresses> {
    let routes = run(&mut words("ip -4 route show"))?;
    let mut refused = String::new();
    for addresses in (0..SLOTS).map(Addresses::new) {
        if let Some(route) = routes.lines().find(|route| addresses.collides_with(route)) {
            refused = format!("the host has a route {route}");
            continue;
        }
        let link = addresses.link();
        let add = format!("ip link add {link} type veth peer name {UPLINK} netns {pid}");
        if let Err(error) = run(&mut words(&add)) {
            refused = error.to_string();
            continue;
        }
        run(&mut words(&format!(
            "ip address add {}/16 dev {link}",
            addresses.host()
        )))?;
        run(&mut words(&format!("ip link set {link} up")))?;
        run(&mut words(&format!(
            "ip route add {} via {}",
            addresses.services(),
            addresses.gateway()
        )))?;
        return Ok(addresses);
    }
    bail!("there is no free slot for another cluster; the last one is not free since {refused}");
}

/// How often to check whether the kernel has removed a link, before it is deleted.
const MAX_LINK_CHECKS: u32 = 400;

/// Waits until the kernel has removed the link of a cluster that ended.
pub fn release_slot(addresses: Addresses) -> Result<()> {
    for _ in 0..MAX_LINK_CHECKS {
        if !is_taken(addresses) {
            return Ok(());
        }
        thread::sleep(LOOK_INTERVAL);
    }
    run(&mut words(&format!("ip link delete {}", addresses.link()))).map(drop)
}

/// Whether a cluster has this slot.
pub fn is_taken(addresses: Addresses) -> bool {
    Path::new("/sys/class/net").join(addresses.link()).exists()
}

/// Sets up the inside. There is no default route, so nothing that happens in here can leave the
/// machine.
pub fn make_inside(addresses: Addresses) -> Result<()> {
    let mut commands = vec![
        "ip link set lo up".to_owned(),
        // With a fixed address: it would change with every pod otherwise.
        "ip link add pods address 02:74:79:00:00:01 type bridge".to_owned(),
        format!("ip address add {}/16 dev pods", addresses.gateway()),
        "ip link set pods up".to_owned(),
        format!("ip link set {UPLINK} master pods"),
        format!("ip link set {UPLINK} up"),
        // Packets to a Service are rewritten after routing, so that they need a route.
        "ip link add services type bridge".to_owned(),
        "ip link set services up".to_owned(),
        format!("ip route add {} dev services", addresses.services()),
    ];
    for index in 0..NODES.len() {
        commands.push(format!("ip address add {}/16 dev pods", addresses.node(index)));
    }
    for command in commands {
        run(&mut words(&command))?;
    }
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("forwarding between pods can't be turned on")
}

/// The container network configuration of all nodes: they share the bridge and the range of
/// addresses.
pub fn write_cni(plan: &Plan, addresses: Addresses) -> Result<()> {
    let dir = plan.layout().path("cni");
    fs::create_dir_all(&dir)?;
    let (first, last) = addresses.pod_range();
    let range = json!({
        "subnet": addresses.pods(), "rangeStart": first, "rangeEnd": last, "gateway": addresses.gateway(),
    });
    let configuration = json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{
            "type": "bridge",
            "bridge": "pods",
            "isGateway": true,
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "dataDir": plan.layout().path("addresses"),
                "ranges": [[range]],
                "routes": [{"dst": addresses.services()}],
            },
        }],
    });
    fs::write(
        dir.join("10-pods.conflist"),
        serde_json::to_vec_pretty(&configuration)?,
    )?;
    Ok(())
}

/// One proxy is enough for all nodes: they share the network.
pub fn proxy(plan: &Plan) -> Result<Component> {
    let layout = plan.layout();
    let configuration = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "hostnameOverride": NODES[0],
        "clientConnection": {"kubeconfig": layout.path("identities/proxy.kubeconfig")},
        // Otherwise pods on the same bridge would answer each other directly.
        "iptables": {"masqueradeAll": true, "minSyncPeriod": "100ms"},
        // These can't be set in a network namespace.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
    });
    let path = layout.path("proxy.json");
    fs::write(&path, serde_json::to_vec_pretty(&configuration)?)?;
    let arguments = vec![format!("--config={}", path.display())];
    Ok(component(
        plan,
        "kube-proxy",
        plan.programs.go("kube-proxy"),
        arguments,
    ))
}

/// DNS names of Services and pods.
pub fn dns(plan: &Plan, addresses: Addresses) -> Result<Component> {
    let layout = plan.layout();
    let configuration = format!(
        ".:53 {{\n  bind {}\n  errors\n  kubernetes cluster.local in-addr.arpa {{\n    kubeconfig {}\n    ttl 1\n  }}\n}}\n",
        addresses.gateway(),
        layout.text("identities/dns.kubeconfig")
    );
    let path = layout.path("Corefile");
    fs::write(&path, configuration)?;
    let arguments = vec!["-conf".to_owned(), path.display().to_string()];
    Ok(component(plan, "coredns", plan.programs.go("coredns"), arguments))
}

/// Whether DNS knows the Service `kubernetes`.
pub fn dns_answers(addresses: Addresses) -> Result<bool> {
    let socket = UdpSocket::bind((addresses.gateway(), 0))?;
    socket.set_read_timeout(Some(Duration::from_millis(500)))?;
    let query = dns_query("kubernetes.default.svc.cluster.local");
    if socket
        .send_to(&query, SocketAddr::from((addresses.gateway(), 53)))
        .is_err()
    {
        return Ok(false);
    }
    let mut answer = [0; 512];
    Ok(socket
        .recv(&mut answer)
        .is_ok_and(|length| dns_found(&answer[..length])))
}

fn dns_query(name: &str) -> Vec<u8> {
    // Identity, "recursion desired", one question.
    let mut query = vec![0x74, 0x79, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.extend(u8::try_from(label.len()));
        query.extend(label.bytes());
    }
    // End of name, type A, class IN.
    query.extend([0, 0, 1, 0, 1]);
    query
}

/// No error and at least one answer.
fn dns_found(answer: &[u8]) -> bool {
    answer.len() > 12 && answer[3].is_multiple_of(16) && (answer[6] > 0 || answer[7] > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_the_name_in_labels() {
        let query = dns_query("a.svc");
        assert_eq!(query[12..], [1, b'a', 3, b's', b'v', b'c', 0, 0, 1, 0, 1]);
    }

    #[test]
    fn an_answer_counts_only_without_error() {
        let mut answer = [0; 20];
        assert!(!dns_found(&answer));
        answer[7] = 1;
        assert!(dns_found(&answer));
        answer[3] = 3;
        assert!(!dns_found(&answer));
    }
}
