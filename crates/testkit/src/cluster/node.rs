//! A node: a containerd and a kubelet.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;

use super::components::Component;
use super::control_plane::component;
use super::plan::{Addresses, Plan};
use crate::cluster_programs::Programs;
use crate::command::run;
use crate::images::PAUSE;

const KUBELET: &str = "kubelet-";
/// The port on which kubelets listen, each on the address of its node.
pub const KUBELET_PORT: u16 = 10250;

/// The name of a node's kubelet among the components.
pub fn kubelet_name(node: &str) -> String {
    format!("{KUBELET}{node}")
}

/// The node whose kubelet a component is.
pub fn of_kubelet(component: &str) -> Option<&str> {
    component.strip_prefix(KUBELET)
}

const CONTAINERD: &str = "containerd-";

/// The name of a node's containerd among the components.
pub fn containerd_name(node: &str) -> String {
    format!("{CONTAINERD}{node}")
}

/// The node whose containerd a component is.
pub fn of_containerd(component: &str) -> Option<&str> {
    component.strip_prefix(CONTAINERD)
}

/// Where a node's containerd listens.
pub fn socket(dir: &Path, node: &str) -> PathBuf {
    dir.join(node).join("containerd.sock")
}

/// A node's container runtime.
pub fn containerd(plan: &Plan, node: &str) -> Result<Component> {
    let dir = plan.dir.join(node);
    fs::create_dir_all(&dir)?;
    let at = |name: &str| dir.join(name).display().to_string();
    let configuration = format!(
        r#"version = 2
root = "{root}"
state = "{state}"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{opt}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/{PAUSE}"
  # Without CAP_SYS_RESOURCE a process can't make itself less likely to be killed than its parent.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{cni}"
"#,
        root = at("containerd"),
        state = at("containerd-state"),
        socket = socket(&plan.dir, node).display(),
        opt = at("opt"),
        plugins = plan.programs.debian("usr/lib/cni"),
        cni = plan.layout().text("cni"),
    );
    let path = dir.join("containerd.toml");
    fs::write(&path, configuration)?;
    let arguments = vec![
        format!("--config={}", path.display()),
        "--log-level=warn".to_owned(),
    ];
    let program = plan.programs.debian("usr/bin/containerd");
    Ok(component(plan, &containerd_name(node), program, arguments))
}

/// A node's kubelet.
pub fn kubelet(plan: &Plan, addresses: Addresses, index: usize, node: &str) -> Result<Component> {
    let layout = plan.layout();
    let dir = plan.dir.join(node);
    // Pods do not use the DNS of this machine.
    let resolver = layout.path("resolv.conf");
    fs::write(&resolver, "")?;
    // "0%" turns a threshold off: tests must not depend on how full the disk is.
    let never = json!({
        "memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
        "imagefs.available": "0%", "imagefs.inodesFree": "0%",
    });
    let configuration = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": addresses.node(index),
        "port": KUBELET_PORT,
        "healthzPort": 0,
        "readOnlyPort": 0,
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": format!("unix://{}", socket(&plan.dir, node).display()),
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}/{node}", addresses.cgroup()),
        "failSwapOn": false,
        "clusterDNS": [addresses.gateway()],
        "clusterDomain": "cluster.local",
        "resolvConf": resolver,
        "maxPods": 250,
        "podLogsDir": dir.join("pod-logs"),
        "volumePluginDir": layout.path("volume-plugins"),
        "evictionHard": never,
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "serializeImagePulls": false,
        "nodeStatusUpdateFrequency": "5s",
        "nodeLeaseDurationSeconds": 12,
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
    });
    let path = dir.join("kubelet.json");
    fs::write(&path, serde_json::to_vec_pretty(&configuration)?)?;
    let arguments = vec![
        format!("--config={}", path.display()),
        format!(
            "--kubeconfig={}",
            layout.text(&format!("identities/{node}.kubeconfig"))
        ),
        format!("--hostname-override={node}"),
        format!("--node-ip={}", addresses.node(index)),
        format!("--root-dir={}", dir.join("kubelet").display()),
        format!("--cert-dir={}", dir.join("kubelet-pki").display()),
    ];
    Ok(component(
        plan,
        &kubelet_name(node),
        plan.programs.go("kubelet"),
        arguments,
    ))
}

/// A command that talks to a node's containerd.
pub fn ctr(programs: &Programs, socket: &Path) -> Command {
    let mut command = Command::new(programs.debian("usr/bin/ctr"));
    command
        .envs(programs.environment())
        .arg("-a")
        .arg(socket)
        .args(["-n", "k8s.io"]);
    command
}

/// Puts a docker-archive on a node.
pub fn import(programs: &Programs, socket: &Path, archive: &Path) -> Result<()> {
    run(ctr(programs, socket).args(["images", "import"]).arg(archive))
        .with_context(|| format!("cannot load the image {}", archive.display()))?;
    Ok(())
}
