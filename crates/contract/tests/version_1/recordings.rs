//! What was recorded, read by the code of today.

use rstest::rstest;
use serde_json::Value;
use trainyard_contract::environment;
use trainyard_contract::host_list::{Format, all, list};
use trainyard_contract::installation::Installation;
use trainyard_contract::observer::{self, JobHosts, ProgressReport, RoleHosts};
use trainyard_contract::script::{ScriptEnd, ScriptOrder, ScriptReport, ScriptRun};
use trainyard_contract::shell::{exec_path, split_exec_path};
use trainyard_contract::start::Start;

fn variable(job: &str, container: &str, name: &str) -> String {
    let recorded: Value = serde_json::from_str(recorded!("containers.json")).unwrap();
    let value = recorded[job][container]["env"][name].as_str();
    value.unwrap().to_owned()
}

/// The path of a request, and its body.
fn request(text: &str) -> (&str, &str) {
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap(), body)
}

fn lines(answer: &str) -> impl Iterator<Item = &str> {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    body.lines().filter(|line| !line.is_empty())
}

#[test]
fn requests_have_the_paths_of_today() {
    let (start, _) = request(recorded!("start.request"));
    assert_eq!(start, observer::start_of("ns", "a", "launcher"));
    let (hosts, _) = request(recorded!("hosts.request"));
    assert_eq!(hosts, observer::hosts("ns", "a"));
    let (progress, _) = request(recorded!("progress.request"));
    assert_eq!(progress, observer::progress("ns", "a"));
    for recorded in [recorded!("script.request"), recorded!("script_report.request")] {
        assert_eq!(request(recorded).0, observer::script("ns", "a"));
    }
}

#[test]
fn scripts_and_their_ends_are_read_and_written_as_they_were() {
    let said: Vec<&str> = lines(recorded!("script.answer")).collect();
    let orders = said
        .iter()
        .map(|line| ScriptOrder::read(line.as_bytes()).unwrap());
    let orders: Vec<ScriptOrder> = orders.collect();
    let run = ScriptRun {
        request: "u".to_owned(),
        attempt: 1,
        program: "/bin/echo".to_owned(),
        args: vec!["w-1:4,w-2:4".to_owned()],
        env: vec![("WHY".to_owned(), "it's $(so)".to_owned())],
        timeout_seconds: 60,
    };
    assert_eq!(orders, [ScriptOrder::Idle, ScriptOrder::Run(run)]);
    let written: Vec<String> = orders.iter().map(ScriptOrder::write).collect();
    assert_eq!(written, said);

    let (_, body) = request(recorded!("script_report.request"));
    let report = ScriptReport::read(body.as_bytes()).unwrap();
    assert_eq!(report.end, ScriptEnd::Exited { code: 0 });
    assert_eq!(report.write(), body);
}

#[test]
fn a_report_is_read() {
    let (_, body) = request(recorded!("progress.request"));
    let report = ProgressReport::read(body.as_bytes()).unwrap();
    assert_eq!((report.step, report.total), (Some(3), Some(10)));
    assert_eq!(
        (&*report.metrics["loss"], &*report.metrics["lr"]),
        ("0.25", "NaN")
    );
    assert_eq!(report.write(), body);
}

#[test]
fn answers_are_read() {
    let read = |answer| -> Vec<Start> {
        lines(answer)
            .map(|line| Start::read(line.as_bytes()).unwrap())
            .collect()
    };
    let waits = Start::Wait("waits for the role worker to run".to_owned());
    assert_eq!(read(recorded!("start.answer")), [waits, Start::Go]);
    let ended = Start::Never("can't start: waits for the role worker, which has ended".to_owned());
    assert_eq!(read(recorded!("never.answer")), [ended]);

    let hosts = lines(recorded!("hosts.answer")).map(|line| serde_json::from_str(line).unwrap());
    let expected = |ready: &[u32]| JobHosts {
        roles: vec![
            RoleHosts::new("launcher", 1, []),
            RoleHosts::new("worker", 2, ready.iter().copied()),
        ],
    };
    let hosts: Vec<JobHosts> = hosts.collect();
    assert_eq!(hosts, [expected(&[]), expected(&[0])]);
}

#[rstest]
#[case(Format::OpenMPI, recorded!("hostfile.OpenMPI"))]
#[case(Format::DeepSpeed, recorded!("hostfile.DeepSpeed"))]
#[case(Format::MPICH, recorded!("hostfile.MPICH"))]
#[case(Format::Intel, recorded!("hostfile.Intel"))]
#[case(Format::Hosts, recorded!("hostfile.Hosts"))]
fn installations_make_the_same_lists(#[case] format: Format, #[case] expected: &str) {
    let installation = variable("agent", "launcher/trainyard-install", environment::INSTALL);
    let installation = Installation::read(&installation).unwrap();
    assert!(installation.files.iter().any(|file| file.format == format));
    assert_eq!(list(&all(&installation.hosts), format), expected);
}

#[rstest]
#[case("agent", "launcher/trainyard-install", environment::INSTALL)]
#[case("agent", "launcher/trainyard-hosts", environment::HOSTS)]
#[case("agent", "worker/trainyard-install", environment::INSTALL)]
#[case("deepspeed", "launcher/trainyard-install", environment::INSTALL)]
fn installations_are_written_as_they_were(#[case] job: &str, #[case] container: &str, #[case] name: &str) {
    let text = variable(job, container, name);
    assert_eq!(Installation::read(&text).unwrap().write(), text);
}

#[test]
fn the_path_of_the_api_server_is_read() {
    let path = variable("exec", "launcher/main", environment::EXEC);
    assert_eq!(path, exec_path("ns", "main"));
    let (before, _) = split_exec_path(&path).unwrap();
    assert_eq!(before, "/api/v1/namespaces/ns/pods/");
}
