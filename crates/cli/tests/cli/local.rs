//! `trainyard run` on this machine, as a user calls it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rstest::rstest;
use serde_json::Value;
use trainyard_eventually::eventually;

use super::{repository, text};

fn run(arguments: &[&str]) -> Command {
    // Where tests run in the background, as in a script, interrupts are ignored, and so they would
    // be by those tested here.
    let mut command = Command::new("env");
    command
        .args(["--default-signal", env!("CARGO_BIN_EXE_trainyard"), "run"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A call that ends by itself.
pub fn ran(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = run(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// A run of a shell that has printed its first line.
fn started(script: &str) -> (Child, BufReader<ChildStdout>) {
    started_with(&[], script)
}

/// The same with options.
fn started_with(options: &[&str], script: &str) -> (Child, BufReader<ChildStdout>) {
    let mut child = run(&[options, &["--", "sh", "-c", script]].concat())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "worker-0 | up\n");
    (child, output)
}

fn interrupt(child: &Child) {
    let sent = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
}

/// How a run ended that was made to.
fn ended(mut child: Child) -> (Option<i32>, String) {
    let mut words = String::new();
    child.stderr.take().unwrap().read_to_string(&mut words).unwrap();
    (child.wait().unwrap().code(), words)
}

#[test]
fn what_the_job_prints_is_the_output() {
    let (code, out, words) = ran(&["-n", "2", "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE"]);
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["worker-0 | rank 0 of 2", "worker-1 | rank 1 of 2"]);
    assert_eq!(code, Some(0), "{words}");
    assert!(words.contains("✓ sh succeeded in "), "{words}");
}

/// What the two workers find of each framework that needs nothing but a command; `{0}` and `{1}`
/// are their hosts. A job of tensorflow ends with worker 0, whatever the others have printed.
#[rstest]
#[case::pytorch("pytorch", "$RANK of $WORLD_SIZE at $MASTER_ADDR, node $PET_NODE_RANK", &["0 of 2 at {0}, node 0", "1 of 2 at {0}, node 1"])]
#[case::tensorflow("tensorflow", "$TF_CONFIG", &[
    r#"{"cluster":{"worker":["{0}:2222","{1}:2222"]},"task":{"type":"worker","index":0},"environment":"cloud"}"#,
])]
#[case::deepspeed("deepspeed", "$RANK of $WORLD_SIZE at $MASTER_ADDR, node $PET_NODE_RANK", &["0 of 2 at {0}, node 0", "1 of 2 at {0}, node 1"])]
#[case::jax("jax", "$JAX_PROCESS_ID of $JAX_NUM_PROCESSES at ${JAX_COORDINATOR_ADDRESS%:*}", &["0 of 2 at {0}", "1 of 2 at {0}"])]
#[case::xgboost("xgboost", "$DMLC_TASK_ID of $DMLC_NUM_WORKER at $DMLC_TRACKER_URI, beside $WORKER_ADDRS", &[
    "0 of 2 at {0}, beside {1}",
    "1 of 2 at {0}, beside {1}",
])]
#[case::paddle("paddle", "$PADDLE_RANK of $PADDLE_NNODES at $(echo ${PADDLE_MASTER%:*} | sed s/^$POD_IP$/itself/)", &[
    "0 of 2 at itself",
    "1 of 2 at {0}",
])]
#[case::bagua("bagua", "$RANK of $WORLD_SIZE at $MASTER_ADDR among $BAGUA_NODE_DOMAIN_NAMES", &[
    "0 of 2 at {0} among {0},{1}",
    "1 of 2 at {0} among {0},{1}",
])]
#[case::standalone("standalone", "$TRAINYARD_ROLE $TRAINYARD_INDEX, rank ${RANK-none}", &["worker 0, rank none", "worker 1, rank none"])]
#[case::custom("custom", "$MODULE $INDEX of $worker", &["worker 0 of {0},{1}", "worker 1 of {0},{1}"])]
fn a_command_finds_what_its_framework_tells_it(
    #[case] framework: &str,
    #[case] told: &str,
    #[case] expected: &[&str],
) {
    let script = format!("echo \"{told}\"");
    let options = ["-n", "2", "--framework", framework, "--name", "told"];
    let (code, out, words) = ran(&[&options[..], &["--", "sh", "-c", &script]].concat());
    assert_eq!(code, Some(0), "{words}");
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    lines.truncate(expected.len());
    let host = |index: usize| format!("told-worker-{index}.told.default.svc.cluster.local");
    let expected = expected.iter().enumerate().map(|(index, line)| {
        let line = line.replace("{0}", &host(0)).replace("{1}", &host(1));
        format!("worker-{index} | {line}")
    });
    assert_eq!(lines, expected.collect::<Vec<_>>(), "{words}");
}

#[test]
fn a_command_reaches_its_program_as_it_was_written() {
    let words = [
        "-e",
        "PRICE=$(RANK) $$5",
        "--",
        "sh",
        "-c",
        "echo $PRICE $@",
        "sh",
        "a$$b",
        "$(RANK)",
    ];
    let (code, out, words) = ran(&words);
    assert_eq!(code, Some(0), "{words}");
    assert_eq!(out, "worker-0 | $(RANK) $$5 a$$b $(RANK)\n");
}

#[test]
fn a_failure_is_explained() {
    let (code, _, words) = ran(&["--", "sh", "-c", "echo 'the disk is on fire' >&2; exit 3"]);
    assert_eq!(code, Some(1));
    assert!(
        words.contains("first to fail: sh-worker-0 (container main): exit code 3"),
        "{words}"
    );
    assert!(words.contains("│ the disk is on fire"), "{words}");
}

#[test]
fn a_command_that_does_not_exist_is_named() {
    let (code, out, words) = ran(&["--output", "json", "--", "nosuchprogram"]);
    assert_eq!(code, Some(1), "{words}");
    let summary: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(text(&summary, "/outcome"), "Failed");
    assert_eq!(summary["rootCause"]["exitCode"], 128);
    assert_eq!(text(&summary, "/rootCause/reason"), "StartError");
    assert!(
        text(&summary, "/rootCause/lastLines/0").contains("nosuchprogram"),
        "{summary}"
    );
}

#[test]
fn the_first_interrupt_is_kind() {
    let (child, mut output) = started("trap 'echo bye; exit 0' TERM; echo up; sleep 1000 & wait");
    interrupt(&child);
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "worker-0 | bye\n");
    let (code, words) = ended(child);
    assert_eq!(code, Some(130), "{words}");
    assert!(words.contains("■ sh was interrupted after "), "{words}");
}

#[test]
fn the_second_interrupt_is_not() {
    let ten_minutes = [
        "--set",
        "roles.worker.template.spec.terminationGracePeriodSeconds=600",
    ];
    let script = "trap '' TERM; echo up; while :; do sleep 1; done";
    let (mut child, _output) = started_with(&ten_minutes, script);
    let mut words = BufReader::new(child.stderr.take().unwrap());
    interrupt(&child);
    let mut line = String::new();
    while !line.contains("interrupted: ") {
        line.clear();
        assert_ne!(
            words.read_line(&mut line).unwrap(),
            0,
            "it says that it was interrupted"
        );
    }
    interrupt(&child);
    // It would have had ten minutes, which is longer than this waits.
    let ended = eventually("it ends", || child.try_wait().unwrap().ok_or_else(String::new));
    assert_eq!(ended.code(), Some(130));
}

#[test]
fn time_is_limited() {
    let (code, _, words) = ran(&["--timeout", "500ms", "--", "sleep", "1000"]);
    assert_eq!(code, Some(3), "{words}");
}

#[test]
fn nothing_is_left_of_a_run_that_is_killed() {
    // A number that no other process on this machine sleeps for.
    let nap = format!("{}.75", 1_000_000 + std::process::id());
    let (mut child, _output) = started(&format!("echo up; exec sleep {nap}"));
    assert!(sleeps(&nap));
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("its process is gone", || {
        if sleeps(&nap) { Err(String::new()) } else { Ok(()) }
    });
}

/// Whether some process of this machine sleeps for so long.
fn sleeps(nap: &str) -> bool {
    let wanted = format!("sleep\0{nap}\0");
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
        .any(|line| line == wanted.as_bytes())
}

#[test]
fn a_container_without_a_command_says_what_to_add() {
    let manifest = tempfile::NamedTempFile::new().unwrap();
    let job = std::fs::read_to_string(repository().join("examples/quickstart/job.yaml")).unwrap();
    let silent = job.replace("command: [\"python3\", \"train.py\"]", "args: [\"train.py\"]");
    std::fs::write(&manifest, silent).unwrap();
    let (code, _, words) = ran(&[manifest.path().to_str().unwrap()]);
    assert_eq!(code, Some(2));
    assert!(
        words.contains("--set roles.worker.template.spec.containers."),
        "{words}"
    );
    // A directory with the files of the image does not say what to run either.
    let (code, _, words) = ran(&[manifest.path().to_str().unwrap(), "--image", "python:3-slim=/"]);
    assert_eq!(code, Some(2), "{words}");
}

#[test]
fn who_reads_slowly_loses_no_line() {
    let directory = tempfile::tempdir().unwrap();
    let done = directory.path().join("done");
    let sign = format!("DONE={}", done.display());
    let place = directory.path().to_str().unwrap();
    let script = "seq 60000; touch $DONE";
    let mut child = run(&["-q", "-C", place, "-e", &sign, "--", "sh", "-c", script])
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    output.read_line(&mut first).unwrap();
    // Nothing is read until the job has ended: most of its lines wait.
    eventually("the job ends, although nobody reads", || {
        done.exists().then_some(()).ok_or_else(String::new)
    });
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    let (code, words) = ended(child);
    assert_eq!((code, words.as_str()), (Some(0), ""));
    assert_eq!(rest.lines().count(), 59_999);
    assert!(rest.ends_with("\nworker-0 | 60000\n"));
}

#[test]
fn a_worker_may_save_its_work_when_another_fails() {
    let script = "if [ $RANK = 1 ]; then while [ ! -e $UP ]; do sleep 0.1; done; exit 3; fi
        trap 'sleep 4; echo saved; exit 0' TERM; touch $UP; sleep 1000 & wait";
    let directory = tempfile::tempdir().unwrap();
    let up = format!("UP={}", directory.path().join("up").display());
    let place = directory.path().to_str().unwrap();
    let (code, out, words) = ran(&["-C", place, "-n", "2", "-e", &up, "--", "sh", "-c", script]);
    assert_eq!(code, Some(1), "{words}");
    assert_eq!(out, "worker-0 | saved\n", "{words}");
}

/// What the launcher does in the jobs below: it runs a command in every host of its list, and says
/// what became of it.
const REACH_ALL: &str = "while read -r host slots; do /etc/mpi/kubexec.sh -n $host 'hostname; exit 3' || echo $slots $?; done \
                         </etc/mpi/hostfile";

/// Runs a manifest whose launcher does [`REACH_ALL`], and has two workers with two slots each.
fn reaches_all(job: &str, manifest: &str) {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("job.yaml");
    std::fs::write(&file, manifest).unwrap();
    let (code, out, words) = ran(&["--timeout", "3m", file.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{words}");
    let said = out.lines().filter(|line| line.starts_with("launcher-0 | "));
    let expected = (0..2).flat_map(|i| {
        let host = format!("launcher-0 | {job}-worker-{i}");
        [host, "launcher-0 | slots=2 3".to_owned()]
    });
    assert_eq!(said.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{words}");
}

#[test]
fn programs_are_started_in_other_pods_of_an_mpi_job() {
    let container = |command: &str| format!("containers: [{{name: main, image: example/mpi{command}}}]");
    let manifest = format!(
        "apiVersion: trainyard.dev/v1alpha1\nkind: TrainingJob\nmetadata: {{name: ring}}\nspec:\n  \
         framework: {{name: mpi, mpi: {{slotsPerWorker: 2}}}}\n  roles:\n  \
         - {{name: launcher, replicas: 1, restartPolicy: Never, template: {{spec: {{{}}}}}}}\n  \
         - {{name: worker, replicas: 2, template: {{spec: {{{}}}}}}}\n",
        container(&format!(", command: [sh, -c, \"{REACH_ALL}\"]")),
        container("")
    );
    reaches_all("ring", &manifest);
}

/// As its users have it, but for what the launcher runs.
#[test]
fn a_job_of_another_operator_runs_as_it_is() {
    let manifest = r#"
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: dice, namespace: research}
spec:
  slotsPerWorker: 2
  runPolicy: {cleanPodPolicy: Running, ttlSecondsAfterFinished: 600}
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
          - {name: launcher, image: "example/dice:openmpi", command: [sh, -c], args: ["REACH_ALL"]}
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - name: worker
            image: example/dice:openmpi
            command: [/usr/sbin/sshd]
            args: [-De]
            readinessProbe: {tcpSocket: {port: 2222}}
"#;
    reaches_all("dice", &manifest.replace("REACH_ALL", REACH_ALL));
}

/// Runs an example of another operator, whose pods say what is expected, in any order.
fn runs_as_it_is(example: &str, expected: &[&str]) {
    let manifest = repository().join("examples/compat").join(example);
    let (code, out, words) = ran(&["--timeout", "3m", &manifest.display().to_string()]);
    assert_eq!(code, Some(0), "{words}");
    for line in expected {
        assert!(out.lines().any(|said| said == *line), "{line}: {out}");
    }
}

#[test]
fn an_ares_job_runs_as_it_is() {
    let lines = [
        "worker-0 | told ranks-master-0.ranks.default.svc.cluster.local that I am 1",
        "worker-1 | told ranks-master-0.ranks.default.svc.cluster.local that I am 2",
        "master-0 | the ranks [1, 2] add up to 3",
    ];
    runs_as_it_is("aresjob.yaml", &lines);
}

#[test]
fn a_tfjob_of_dl_operator_runs_as_it_is() {
    // The other worker may be ended with the job before it has heard the sum.
    let lines = [
        "ps-0 | the numbers of 2 workers add up to 3",
        "worker-0 | the sum is 3",
    ];
    runs_as_it_is("dl-tfjob.yaml", &lines);
}

#[test]
fn a_declared_framework_trains_without_a_cluster() {
    let manifest = repository().join("examples/declared/job.yaml");
    trains_in_a_ring(&[&manifest.display().to_string()]);
    let text = std::fs::read_to_string(manifest).unwrap();
    let (job, framework) = text.split_once("---\n").unwrap();
    let place = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = place.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let (job, framework) = (write("job.yaml", job), write("framework.yaml", framework));
    trains_in_a_ring(&["--framework-file", &framework, &job]);
}

/// Runs the example of declared frameworks, in which every pod knows the next one.
fn trains_in_a_ring(arguments: &[&str]) {
    let (code, out, words) = ran(arguments);
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    let next = |to: usize| format!("my neighbour is ring-worker-{to}.ring.default.svc.cluster.local:7000");
    let expected: Vec<String> = (0..3)
        .flat_map(|from| {
            let host = format!("worker-{from} | ring-worker-{from}.ring.default.svc.cluster.local");
            [host, format!("worker-{from} | {}", next((from + 1) % 3))]
        })
        .collect();
    let mut expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(lines, expected, "{words}");
    assert_eq!(code, Some(0), "{words}");
}
