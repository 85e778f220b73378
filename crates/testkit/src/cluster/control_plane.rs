//! etcd, API server, controller manager, scheduler: certificates, identities and command lines.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;

use super::components::Component;
use super::plan::{Layout, NODES, Plan};
use crate::command::run;
use crate::hex::hex;

/// Makes the cluster's certificates and keys.
pub fn make_keys(plan: &Plan) -> Result<()> {
    let dir = plan.layout().path("pki");
    fs::create_dir_all(&dir)?;
    let mut names = vec![
        format!("IP:{}", plan.apiserver_address()),
        "IP:127.0.0.1".to_owned(),
    ];
    if let Some(addresses) = plan.addresses() {
        names.push(format!("IP:{}", addresses.kubernetes_service()));
    }
    for name in [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
    ] {
        names.push(format!("DNS:{name}"));
    }
    names.push("DNS:kubernetes.default.svc.cluster.local".to_owned());
    // Not the configuration of the machine, which may differ.
    let configuration = format!(
        "[req]\ndistinguished_name = name\nprompt = no\n[name]\nCN = trainyard-test\n\
         [ca]\nbasicConstraints = critical,CA:TRUE\nkeyUsage = critical,digitalSignature,keyCertSign,cRLSign\n\
         subjectKeyIdentifier = hash\n\
         [server]\nbasicConstraints = critical,CA:FALSE\nkeyUsage = critical,digitalSignature\n\
         extendedKeyUsage = serverAuth\nsubjectAltName = {}\n",
        names.join(",")
    );
    fs::write(dir.join("openssl.cnf"), configuration)?;
    let openssl = |line: &str| -> Result<()> {
        run(Command::new("openssl")
            .args(line.split_whitespace())
            .current_dir(&dir))
        .context("the cluster's certificates can't be made")?;
        Ok(())
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -config openssl.cnf";
    openssl(&format!(
        "req -x509 {key} -extensions ca -days 3650 -keyout ca.key -out ca.crt"
    ))?;
    openssl(&format!(
        "req -new {key} -subj /CN=kube-apiserver -keyout server.key -out server.csr"
    ))?;
    openssl(
        "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 \
         -extfile openssl.cnf -extensions server -out server.crt",
    )?;
    openssl("ecparam -name prime256v1 -genkey -noout -out sa.key")
}

/// Gives every component a token and writes their kubeconfigs; the administrator's is in the
/// cluster's directory.
pub fn make_identities(plan: &Plan) -> Result<()> {
    let layout = plan.layout();
    let mut identities = vec![
        ("admin".to_owned(), "admin".to_owned(), "system:masters"),
        (
            "controllers".to_owned(),
            "system:kube-controller-manager".to_owned(),
            "",
        ),
        ("scheduler".to_owned(), "system:kube-scheduler".to_owned(), ""),
        ("proxy".to_owned(), "system:kube-proxy".to_owned(), ""),
        ("dns".to_owned(), "trainyard:dns".to_owned(), "system:masters"),
    ];
    for node in NODES {
        identities.push((node.to_owned(), format!("system:node:{node}"), "system:nodes"));
    }
    fs::create_dir_all(layout.path("identities"))?;
    let mut table = String::new();
    for (name, user, groups) in &identities {
        let token = random_token()?;
        table.extend([&token, ",", user, ",", user, ",\"", groups, "\"\n"]);
        let path = layout.path(&format!("identities/{name}.kubeconfig"));
        write_private(&path, &kubeconfig(&layout, &plan.server(), name, &token)?)?;
    }
    write_private(&layout.path("identities/tokens.csv"), &table)?;
    fs::copy(layout.path("identities/admin.kubeconfig"), layout.kubeconfig())?;
    Ok(())
}

fn kubeconfig(layout: &Layout, server: &str, user: &str, token: &str) -> Result<String> {
    // JSON is YAML, and every client reads it.
    let content = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "trainyard",
        "clusters": [{
            "name": "trainyard",
            "cluster": {"server": server, "certificate-authority": layout.path("pki/ca.crt")},
        }],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "trainyard", "context": {"cluster": "trainyard", "user": user}}],
    });
    Ok(serde_json::to_string_pretty(&content)?)
}

fn random_token() -> Result<String> {
    let mut bytes = [0; 24];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("no random numbers from /dev/urandom")?;
    Ok(hex(&bytes))
}

fn write_private(path: &Path, content: &str) -> Result<()> {
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(())
}

/// A component of this plan.
pub fn component(plan: &Plan, name: &str, program: String, arguments: Vec<String>) -> Component {
    let layout = plan.layout();
    let mut argv = vec![program];
    argv.extend(arguments);
    let mut environment = plan.programs.environment();
    environment.push(("HOME".to_owned(), layout.text("home")));
    Component {
        name: name.to_owned(),
        argv,
        environment,
        log: layout.log(name),
    }
}

/// The store.
pub fn etcd(plan: &Plan) -> Component {
    let client = format!("http://127.0.0.1:{}", plan.ports.etcd);
    let peer = format!("http://127.0.0.1:{}", plan.ports.peer);
    let arguments = vec![
        "--name=default".to_owned(),
        format!("--data-dir={}", plan.layout().text("etcd")),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    component(plan, "etcd", plan.programs.go("etcd"), arguments)
}

/// The API server.
pub fn apiserver(plan: &Plan) -> Component {
    let layout = plan.layout();
    let address = plan.apiserver_address();
    let mut arguments = vec![
        format!("--etcd-servers=http://127.0.0.1:{}", plan.ports.etcd),
        format!("--bind-address={address}"),
        format!("--advertise-address={address}"),
        format!("--secure-port={}", plan.ports.apiserver),
        format!("--cert-dir={}", layout.text("pki")),
        format!("--tls-cert-file={}", layout.text("pki/server.crt")),
        format!("--tls-private-key-file={}", layout.text("pki/server.key")),
        format!("--client-ca-file={}", layout.text("pki/ca.crt")),
        format!("--token-auth-file={}", layout.text("identities/tokens.csv")),
        format!("--service-account-key-file={}", layout.text("pki/sa.key")),
        format!("--service-account-signing-key-file={}", layout.text("pki/sa.key")),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        // Shorter than the default, for tests of lost nodes.
        "--default-not-ready-toleration-seconds=10".to_owned(),
        "--default-unreachable-toleration-seconds=10".to_owned(),
    ];
    if let Some(addresses) = plan.addresses() {
        arguments.push(format!("--service-cluster-ip-range={}", addresses.services()));
    } else {
        arguments.push("--service-cluster-ip-range=10.96.0.0/16".to_owned());
        // An endpoint on the loopback address would be refused every ten seconds.
        arguments.push("--endpoint-reconciler-type=none".to_owned());
    }
    if plan.gang {
        arguments.push(GANG.to_owned());
        arguments.push("--runtime-config=scheduling.k8s.io/v1alpha2=true".to_owned());
    }
    component(
        plan,
        "kube-apiserver",
        plan.programs.go("kube-apiserver"),
        arguments,
    )
}

const GANG: &str = "--feature-gates=GenericWorkload=true,GangScheduling=true";

/// The controllers.
pub fn controllers(plan: &Plan) -> Component {
    let layout = plan.layout();
    let arguments = vec![
        format!(
            "--kubeconfig={}",
            layout.text("identities/controllers.kubeconfig")
        ),
        "--use-service-account-credentials".to_owned(),
        format!("--service-account-private-key-file={}", layout.text("pki/sa.key")),
        format!("--root-ca-file={}", layout.text("pki/ca.crt")),
        format!("--cluster-signing-cert-file={}", layout.text("pki/ca.crt")),
        format!("--cluster-signing-key-file={}", layout.text("pki/ca.key")),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        // A lost node is noticed soon; a node still has four chances to renew its lease.
        "--node-monitor-period=2s".to_owned(),
        "--node-monitor-grace-period=12s".to_owned(),
        // The default is 15 s.
        "--horizontal-pod-autoscaler-sync-period=2s".to_owned(),
        // The default is a directory of this machine.
        format!("--flex-volume-plugin-dir={}", layout.text("volume-plugins")),
        "--kube-api-qps=200".to_owned(),
        "--kube-api-burst=400".to_owned(),
    ];
    component(
        plan,
        "kube-controller-manager",
        plan.programs.go("kube-controller-manager"),
        arguments,
    )
}

/// The scheduler.
pub fn scheduler(plan: &Plan) -> Component {
    let identity = plan.layout().text("identities/scheduler.kubeconfig");
    let mut arguments = vec![
        format!("--kubeconfig={identity}"),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        "--kube-api-qps=200".to_owned(),
        "--kube-api-burst=400".to_owned(),
    ];
    if plan.gang {
        arguments.push(GANG.to_owned());
    }
    component(
        plan,
        "kube-scheduler",
        plan.programs.go("kube-scheduler"),
        arguments,
    )
}
