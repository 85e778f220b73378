//! Starting a cluster, from inside its namespaces.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use super::components::Components;
use super::control_plane::{apiserver, controllers, etcd, make_identities, make_keys, scheduler};
use super::plan::{Addresses, NODES, Plan};
use super::{cgroups, network, node};
use crate::command::{run, wait_until};

/// Kernel settings that a kubelet would change. It sees files with its values instead of those of
/// this machine.
const TUNABLES: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Starts everything in the plan and returns when it is ready.
pub fn boot(plan: &Plan, components: &Components) -> Result<()> {
    for name in ["logs", "home", "volume-plugins"] {
        fs::create_dir_all(plan.dir.join(name))?;
    }
    make_keys(plan)?;
    make_identities(plan)?;
    let addresses = plan.addresses();
    if let Some(addresses) = addresses {
        isolate(&plan.dir)?;
        network::make_inside(addresses)?;
        network::write_cni(plan, addresses)?;
    }
    components.step("keys and network made");
    components.add(etcd(plan))?;
    components.add(apiserver(plan))?;
    match addresses {
        None => {
            apiserver_ready(plan, components)?;
            if plan.controllers {
                components.add(controllers(plan))?;
            }
            Ok(())
        }
        Some(addresses) => boot_nodes(plan, components, addresses),
    }
}

fn boot_nodes(plan: &Plan, components: &Components, addresses: Addresses) -> Result<()> {
    for name in NODES {
        cgroups::make(addresses, name)?;
        components.add(node::containerd(plan, name)?)?;
    }
    thread::scope(|scope| {
        // Images are loaded while the API server starts.
        let loading: Vec<_> = NODES
            .iter()
            .map(|name| scope.spawn(|| runtime_ready(plan, components, name)))
            .collect();
        apiserver_ready(plan, components)?;
        for load in loading {
            load.join().map_err(|_| anyhow!("loading images ended early"))??;
        }
        anyhow::Ok(())
    })?;
    components.add(controllers(plan))?;
    components.add(scheduler(plan))?;
    for (index, name) in NODES.iter().enumerate() {
        components.add(node::kubelet(plan, addresses, index, name)?)?;
    }
    components.add(network::dns(plan, addresses)?)?;
    components.add(network::proxy(plan)?)?;
    nodes_ready(plan, components)?;
    wait("DNS answers", components, || network::dns_answers(addresses))?;
    components.step("DNS answers");
    let service = SocketAddr::from((addresses.kubernetes_service(), 443));
    let limit = Duration::from_millis(300);
    wait("Services work", components, || {
        Ok(TcpStream::connect_timeout(&service, limit).is_ok())
    })?;
    components.step("Services work");
    // Pods can't be created before their namespace has a service account.
    let account = "get serviceaccount default -n default --ignore-not-found -o name";
    wait("there is a service account", components, || {
        Ok(kubectl(plan, account).is_ok_and(|name| !name.is_empty()))
    })
}

/// Gives the components directories of their own for what they read and write at fixed paths.
fn isolate(dir: &Path) -> Result<()> {
    // With -n, because /run is still that of the machine.
    let mount = |arguments: &[&str]| run(Command::new("mount").arg("-n").args(arguments)).map(drop);
    // Volumes that are mounted after a container was started must propagate into it.
    mount(&["--make-rshared", "/"])?;
    mount(&["-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"])?;
    for place in ["var/lib", "var/log"] {
        let own = dir.join("machine").join(place);
        fs::create_dir_all(&own)?;
        let own = own.display().to_string();
        mount(&["--bind", &own, &format!("/{place}")])?;
    }
    let tunables = dir.join("machine/tunables");
    fs::create_dir_all(&tunables)?;
    for (name, value) in TUNABLES {
        let shown = tunables.join(name.replace('/', "."));
        fs::write(&shown, format!("{value}\n"))?;
        let setting = format!("/proc/sys/{name}");
        if Path::new(&setting).exists() {
            mount(&["--bind", &shown.display().to_string(), &setting])?;
        }
    }
    Ok(())
}

/// Waits until the runtime of a node answers. A kubelet that is started before ends at once.
pub fn runtime_answers(plan: &Plan, components: &Components, name: &str) -> Result<()> {
    let socket = node::socket(&plan.dir, name);
    wait("containerd answers", components, || {
        Ok(socket.exists() && run(node::ctr(&plan.programs, &socket).arg("version")).is_ok())
    })
}

/// Waits until a node's kubelet listens. It ends if containerd answers and does not serve kubelets
/// yet, and is started again then, as a machine would do.
pub fn kubelet_listens(plan: &Plan, components: &Components, name: &str) -> Result<()> {
    let index = NODES.iter().position(|known| *known == name);
    let (Some(addresses), Some(index)) = (plan.addresses(), index) else {
        return Ok(());
    };
    let address = SocketAddr::from((addresses.node(index), node::KUBELET_PORT));
    let kubelet = node::kubelet_name(name);
    wait_until("the kubelet listens", || {
        components.ensure_started(&kubelet)?;
        Ok(TcpStream::connect_timeout(&address, Duration::from_millis(300)).is_ok())
    })
}

fn runtime_ready(plan: &Plan, components: &Components, name: &str) -> Result<()> {
    let socket = node::socket(&plan.dir, name);
    runtime_answers(plan, components, name)?;
    for image in &plan.images {
        node::import(&plan.programs, &socket, image)?;
    }
    components.step(&format!("{name} has its images"));
    Ok(())
}

/// Waits until the API server says that it is ready.
pub fn apiserver_ready(plan: &Plan, components: &Components) -> Result<()> {
    let address = SocketAddr::from((plan.apiserver_address(), plan.ports.apiserver));
    let limit = Duration::from_millis(300);
    // A connection is much cheaper than kubectl.
    wait("the API server listens", components, || {
        Ok(TcpStream::connect_timeout(&address, limit).is_ok())
    })?;
    wait("the API server is ready", components, || {
        Ok(kubectl(plan, "get --raw /readyz").is_ok())
    })?;
    components.step("the API server is ready");
    Ok(())
}

fn nodes_ready(plan: &Plan, components: &Components) -> Result<()> {
    let query = "get nodes -o jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}";
    wait("all nodes are ready", components, || {
        thread::sleep(Duration::from_millis(300));
        let states = kubectl(plan, query).unwrap_or_default();
        Ok(states.split_whitespace().filter(|state| *state == "True").count() == NODES.len())
    })?;
    components.step("all nodes are ready");
    Ok(())
}

fn kubectl(plan: &Plan, line: &str) -> Result<String> {
    let layout = plan.layout();
    run(Command::new(plan.programs.go("kubectl"))
        .args(line.split_whitespace())
        .args(["--request-timeout", "5s"])
        .env("KUBECONFIG", layout.kubeconfig())
        .env("HOME", layout.path("home")))
}

fn wait(what: &str, components: &Components, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let result = wait_until(what, || {
        components.check()?;
        done()
    });
    result.context("the cluster did not start")
}
