//! Starting a cluster, from inside its namespaces.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use super::control_plane::{apiserver, controllers, etcd, make_identities, make_keys, scheduler};
use super::crew::Crew;
use super::plan::{Addresses, NODES, Plan};
use super::{cgroups, network, node};
use crate::command::{run, wait_until};

/// Settings that a kubelet makes on a machine of its own. It is shown that they are made, so that it leaves ours alone.
const TUNABLES: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Starts everything that the plan says and returns when it works.
pub fn boot(plan: &Plan, crew: &Crew) -> Result<()> {
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
    crew.step("keys and network made");
    crew.add(etcd(plan))?;
    crew.add(apiserver(plan))?;
    match addresses {
        None => {
            apiserver_ready(plan, crew)?;
            if plan.controllers {
                crew.add(controllers(plan))?;
            }
            Ok(())
        }
        Some(addresses) => boot_nodes(plan, crew, addresses),
    }
}

fn boot_nodes(plan: &Plan, crew: &Crew, addresses: Addresses) -> Result<()> {
    for name in NODES {
        cgroups::make(addresses, name)?;
        crew.add(node::containerd(plan, name)?)?;
    }
    thread::scope(|scope| {
        // The API server takes some seconds to start, in which the nodes get their images.
        let loading: Vec<_> = NODES
            .iter()
            .map(|name| scope.spawn(|| runtime_ready(plan, crew, name)))
            .collect();
        apiserver_ready(plan, crew)?;
        for load in loading {
            load.join().map_err(|_| anyhow!("loading images ended early"))??;
        }
        anyhow::Ok(())
    })?;
    crew.add(controllers(plan))?;
    crew.add(scheduler(plan))?;
    for (index, name) in NODES.iter().enumerate() {
        crew.add(node::kubelet(plan, addresses, index, name)?)?;
    }
    crew.add(network::dns(plan, addresses)?)?;
    crew.add(network::proxy(plan)?)?;
    nodes_ready(plan, crew)?;
    wait("DNS answers", crew, || network::dns_answers(addresses))?;
    crew.step("DNS answers");
    let service = SocketAddr::from((addresses.kubernetes_service(), 443));
    let limit = Duration::from_millis(300);
    wait("Services work", crew, || {
        Ok(TcpStream::connect_timeout(&service, limit).is_ok())
    })?;
    crew.step("Services work");
    // Pods can't be made before their namespace has this.
    let account = "get serviceaccount default -n default --ignore-not-found -o name";
    wait("there is a service account", crew, || {
        Ok(kubectl(plan, account).is_ok_and(|name| !name.is_empty()))
    })
}

/// Hides from the machine what components write to fixed places, and from components what is the machine's.
fn isolate(dir: &Path) -> Result<()> {
    // Without a note in /run, which is still the machine's.
    let mount = |arguments: &[&str]| run(Command::new("mount").arg("-n").args(arguments)).map(drop);
    // Volumes that are mounted after a container started are seen in it only if this is so.
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
pub fn runtime_answers(plan: &Plan, crew: &Crew, name: &str) -> Result<()> {
    let socket = node::socket(&plan.dir, name);
    wait("containerd answers", crew, || {
        Ok(socket.exists() && run(node::ctr(&plan.programs, &socket).arg("version")).is_ok())
    })
}

fn runtime_ready(plan: &Plan, crew: &Crew, name: &str) -> Result<()> {
    let socket = node::socket(&plan.dir, name);
    runtime_answers(plan, crew, name)?;
    for image in &plan.images {
        node::import(&plan.programs, &socket, image)?;
    }
    crew.step(&format!("{name} has its images"));
    Ok(())
}

/// Waits until the API server says that it is ready.
pub fn apiserver_ready(plan: &Plan, crew: &Crew) -> Result<()> {
    let address = SocketAddr::from((plan.apiserver_address(), plan.ports.apiserver));
    let limit = Duration::from_millis(300);
    // A connection costs nothing, kubectl a tenth of a second of processor.
    wait("the API server listens", crew, || {
        Ok(TcpStream::connect_timeout(&address, limit).is_ok())
    })?;
    wait("the API server is ready", crew, || {
        Ok(kubectl(plan, "get --raw /readyz").is_ok())
    })?;
    crew.step("the API server is ready");
    Ok(())
}

fn nodes_ready(plan: &Plan, crew: &Crew) -> Result<()> {
    let query = "get nodes -o jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}";
    wait("all nodes are ready", crew, || {
        thread::sleep(Duration::from_millis(300));
        let states = kubectl(plan, query).unwrap_or_default();
        Ok(states.split_whitespace().filter(|state| *state == "True").count() == NODES.len())
    })?;
    crew.step("all nodes are ready");
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

fn wait(what: &str, crew: &Crew, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let result = wait_until(what, || {
        crew.check()?;
        done()
    });
    result.context("the cluster did not start")
}
