//! What is written today, read as both sides of version 1 read it. These readers never change.

use std::collections::BTreeMap;

use rstest::rstest;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use trainyard_contract::host_list::{Format, Host, Hosts, list};
use trainyard_contract::installation::{Installation, ListFile};
use trainyard_contract::observer::{JobHosts, ProgressReport, RoleHosts, number_text};
use trainyard_contract::start::Start;

fn read<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[derive(Deserialize)]
struct StartLine {
    state: String,
    #[serde(default)]
    message: String,
}

#[rstest]
#[case(Start::Go, "Go", "")]
#[case(Start::Wait("for a".to_owned()), "Wait", "for a")]
#[case(Start::Never("a has ended".to_owned()), "Never", "a has ended")]
fn an_agent_understands_when_to_start(#[case] start: Start, #[case] state: &str, #[case] message: &str) {
    let line: StartLine = read(&serde_json::to_string(&start).unwrap());
    assert_eq!((&*line.state, &*line.message), (state, message));
}

#[derive(Deserialize)]
struct HostsLine {
    roles: Vec<RoleLine>,
}

#[derive(Deserialize)]
struct RoleLine {
    name: String,
    replicas: u32,
    #[serde(default)]
    ready: String,
}

#[test]
fn an_agent_understands_which_hosts_there_are() {
    let roles = vec![RoleHosts::new("worker", 9, [0, 1, 2, 3, 7])];
    let line: HostsLine = read(&serde_json::to_string(&JobHosts { roles }).unwrap());
    let RoleLine {
        name,
        replicas,
        ready,
    } = &line.roles[0];
    assert_eq!((&**name, *replicas, &**ready), ("worker", 9, "0-3,7"));
}

/// One of a former version, which passes over what it does not know, has the ready ones right.
#[test]
fn an_agent_understands_which_hosts_there_are_where_some_have_left() {
    let role = RoleHosts {
        members: Some("0,2".to_owned()),
        ..RoleHosts::new("worker", 3, [0, 2])
    };
    assert_eq!(role.members(), [0, 2].into());
    let roles = vec![role];
    let line = serde_json::to_string(&JobHosts { roles }).unwrap();
    let former: HostsLine = read(&line);
    assert_eq!((former.roles[0].replicas, &*former.roles[0].ready), (3, "0,2"));
    let JobHosts { roles } = serde_json::from_str(&line).unwrap();
    assert_eq!(roles[0].members(), [0, 2].into());
    assert_eq!(roles[0].ready().collect::<Vec<u32>>(), [0, 2]);
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Install {
    directory: String,
    #[serde(default)]
    hosts: Vec<InstallHosts>,
    #[serde(default)]
    files: Vec<InstallFile>,
    #[serde(default)]
    programs: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InstallHosts {
    pattern: String,
    #[serde(default)]
    from: u32,
    count: u32,
    slots: u32,
    #[serde(default)]
    role: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InstallFile {
    path: String,
    format: String,
}

#[test]
fn an_agent_understands_what_to_install() {
    let written = Installation {
        directory: "/etc/mpi".to_owned(),
        hosts: vec![Hosts {
            pattern: "w-{}.x".to_owned(),
            from: 1,
            count: 2,
            slots: 4,
            role: Some("worker".to_owned()),
        }],
        files: vec![ListFile {
            format: Format::OpenMPI,
            path: "/etc/mpi/hostfile".to_owned(),
        }],
        programs: vec!["pdsh".to_owned()],
    };
    let install: Install = read(&written.write());
    let InstallHosts {
        pattern,
        from,
        count,
        slots,
        role,
    } = &install.hosts[0];
    assert_eq!((&**pattern, from, count, slots), ("w-{}.x", &1, &2, &4));
    assert_eq!(role.as_deref(), Some("worker"));
    let InstallFile { path, format } = &install.files[0];
    assert_eq!((&**path, &**format), ("/etc/mpi/hostfile", "OpenMPI"));
    assert_eq!(
        (&*install.directory, &*install.programs),
        ("/etc/mpi", &["pdsh".to_owned()][..])
    );
}

#[derive(Deserialize)]
struct Progress {
    step: Option<i64>,
    total: Option<i64>,
    #[serde(default)]
    metrics: BTreeMap<String, String>,
}

#[test]
fn an_operator_understands_a_report() {
    let report = ProgressReport {
        metrics: [("loss".to_owned(), number_text(0.25))].into(),
        artifacts: [("model".to_owned(), "/data/model.pt".to_owned())].into(),
        step: Some(3),
        total: None,
    };
    let Progress { step, total, metrics } = read(&report.write());
    assert_eq!((step, total, &*metrics["loss"]), (Some(3), None, "0.25"));
}

/// A line as launchers read it: a host, and how many processes it may have. A line of a host alone
/// is for one process.
fn launcher(line: &str) -> (&str, u32) {
    let (host, slots) = line
        .split_once(" slots=")
        .or_else(|| line.rsplit_once(':'))
        .unwrap_or((line, "1"));
    (host, slots.parse().unwrap())
}

#[rstest]
fn launchers_find_all_hosts(
    #[values(
        Format::OpenMPI,
        Format::DeepSpeed,
        Format::MPICH,
        Format::Intel,
        Format::Hosts
    )]
    format: Format,
) {
    let hosts = [("l", 1), ("w-0.x", 4), ("w-1.x", 4)];
    let written = hosts.map(|(name, slots)| Host {
        name: name.to_owned(),
        slots,
    });
    let text = list(&written, format);
    let mut found: Vec<(&str, u32)> = Vec::new();
    for (host, slots) in text.lines().map(launcher) {
        match found.last_mut() {
            Some((last, processes)) if *last == host => *processes += slots,
            _ => found.push((host, slots)),
        }
    }
    assert_eq!(found, hosts);
}
