//! Real MPI between pods, on real nodes and on the embedded cluster.

mod lost;
mod start;
mod stateful;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use trainyard_testkit::framework_table::{self, Proof};
use trainyard_testkit::lab::{self, Image, Lab, Role, Scenarios, job};
use trainyard_testkit::scenarios;
use trainyard_testkit::{images, seen};

use self::lost::{
    a_worker_that_fails_ends_the_run_and_is_the_root_cause, a_worker_that_falls_silent_is_given_up,
    a_worker_that_is_cut_off_is_given_up,
    a_worker_that_is_killed_ends_its_shells_at_once_and_is_the_root_cause,
};
use self::start::{
    a_worker_that_is_killed_during_the_start_is_replaced_and_waited_for,
    the_agent_needs_neither_a_user_nor_a_place_to_write,
};
use self::stateful::pods_of_a_statefulset_are_out_of_reach;

pub const SCENARIOS: Scenarios = scenarios!(
    "mpi",
    &[Image::AGENT, Image::MPI],
    [
        open_mpi_4,
        open_mpi_5,
        mpich,
        intel_mpi,
        slots_and_np_are_honoured,
        host_files_follow_the_workers_and_progress_is_told,
        a_worker_that_fails_ends_the_run_and_is_the_root_cause,
        a_worker_that_is_killed_ends_its_shells_at_once_and_is_the_root_cause,
        a_worker_that_falls_silent_is_given_up,
        a_worker_that_is_cut_off_is_given_up,
        the_agent_needs_neither_a_user_nor_a_place_to_write,
        a_worker_that_is_killed_during_the_start_is_replaced_and_waited_for,
        the_right_of_a_job_is_for_its_own_workers_alone,
    ]
);

pub const STATEFUL: Scenarios = scenarios!(
    "stateful",
    &[Image::AGENT, Image::MPI],
    [pods_of_a_statefulset_are_out_of_reach]
);

/// One implementation in the image.
struct Implementation {
    /// The beginning of a namespace's name.
    lab: &'static str,
    /// As people know it.
    called: &'static str,
    /// As jobs name it.
    name: &'static str,
    /// Starts ranks.
    mpirun: &'static str,
    /// What each rank runs.
    program: &'static str,
    /// Whether ranks add up what all have: the library is there too.
    exchanges: bool,
}

const OPEN_MPI_4: Implementation = Implementation {
    lab: "open-mpi-4",
    called: "Open MPI 4.1",
    name: "OpenMPI",
    mpirun: "mpirun.openmpi",
    program: "/usr/local/bin/allreduce-openmpi4",
    exchanges: true,
};

const OPEN_MPI_5: Implementation = Implementation {
    lab: "open-mpi-5",
    called: "Open MPI 5.0",
    name: "OpenMPI",
    mpirun: "/usr/local/openmpi5/bin/mpirun",
    program: "/usr/local/bin/allreduce-openmpi5",
    exchanges: true,
};

const MPICH: Implementation = Implementation {
    lab: "mpich",
    called: "MPICH 5.0",
    name: "MPICH",
    mpirun: "/usr/local/mpich/bin/mpirun",
    program: "/usr/local/bin/allreduce-mpich",
    exchanges: true,
};

const INTEL: Implementation = Implementation {
    lab: "intel",
    called: "Intel MPI 2021.19, starting processes only",
    name: "Intel",
    mpirun: "/usr/local/impi/bin/mpiexec.hydra",
    program: r#"sh -c 'echo "rank $PMI_RANK of $PMI_SIZE on $(hostname): started"'"#,
    exchanges: false,
};

/// Workers stay when all is over, to be looked at.
const KEEP: &str = r#"{"runPolicy": {"cleanPodPolicy": "None"}}"#;

/// A job whose launcher runs a script, with workers that do nothing by themselves.
fn mpi_job(
    name: &str,
    implementation: &Implementation,
    workers: u32,
    script: &str,
    options: &Value,
) -> Value {
    let launcher = Role {
        name: "launcher",
        replicas: 1,
        script,
        more: r#"{"restartPolicy": "Never"}"#,
    };
    let worker = Role {
        more: r#"{"restartPolicy": "Never", "placement": {"spread": "Preferred"}}"#,
        ..Role::worker(workers, "")
    };
    let mut manifest: Value = serde_json::from_str(&job(name, "mpi", &[launcher, worker], KEEP)).unwrap();
    let spec = &mut manifest["spec"];
    spec["framework"]["mpi"] = options.clone();
    spec["framework"]["mpi"]["implementation"] = implementation.name.into();
    for role in spec["roles"].as_array_mut().unwrap() {
        let is_worker = role["name"] == "worker";
        let template = &mut role["template"];
        lab::own_tmp(template);
        lab::tolerate_silence(template);
        let container = &mut template["spec"]["containers"][0];
        container["image"] = images::MPI.into();
        if is_worker {
            container.as_object_mut().unwrap().remove("command");
        }
    }
    manifest
}

/// What each rank has said: where it ran and what it got, in the order of ranks.
fn ranks(log: &str, of: usize) -> Vec<(String, String)> {
    let said = |rank: usize| {
        let begin = format!("rank {rank} of {of} on ");
        let line = log.lines().find_map(|line| line.strip_prefix(&*begin))?;
        let (host, result) = line.split_once(": ")?;
        Some((host.to_owned(), result.to_owned()))
    };
    (0..of).map_while(said).collect()
}

/// The sum over all ranks and steps; nobody has it without all others.
fn result(ranks: usize) -> String {
    (ranks * (ranks + 1) / 2 * (1..=81).sum::<usize>()).to_string()
}

/// The ways in which mpirun reaches workers.
const ATTACH_MODES: [&str; 3] = ["Agent", "Exec", "Ssh"];

fn open_mpi_4() {
    over_every_way(&OPEN_MPI_4);
}

fn open_mpi_5() {
    over_every_way(&OPEN_MPI_5);
}

fn mpich() {
    over_every_way(&MPICH);
}

fn intel_mpi() {
    over_every_way(&INTEL);
}

fn over_every_way(implementation: &Implementation) {
    let (lab, _operator) = Lab::with_agent(implementation.lab);
    let script = format!("{} -np 3 {}", implementation.mpirun, implementation.program);
    for way in ATTACH_MODES {
        let name = way.to_lowercase();
        let mut manifest = mpi_job(&name, implementation, 3, &script, &json!({"attach": way}));
        if way == "Ssh" {
            with_ssh(&mut manifest);
        }
        lab.apply(&manifest.to_string()).unwrap();
    }
    let got = if implementation.exchanges {
        result(3)
    } else {
        "started".to_owned()
    };
    for way in ATTACH_MODES {
        let name = way.to_lowercase();
        lab.wait_until_ended(&name, "Succeeded");
        let log = lab.logs(&format!("{name}-launcher-0"));
        let expected: Vec<_> = (0..3)
            .map(|i| (format!("{name}-worker-{i}"), got.clone()))
            .collect();
        let mut found = ranks(&log, 3);
        // Which rank is where is the implementation's choice.
        found.sort();
        assert_eq!(found, expected, "{way}: {log}");
        let nodes: BTreeSet<String> = lab.get(&format!("pods -l trainyard.dev/job={name}"))["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|pod| pod["spec"]["nodeName"].to_string())
            .collect();
        assert_eq!(nodes.len(), 2, "{way}: {nodes:?}");
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR"));
        seen::record(kept, implementation.called, way, lab.is_embedded());
        if implementation.exchanges {
            for proof in [Proof::Contract, Proof::Training] {
                framework_table::record(kept, "mpi", proof, lab.is_embedded());
            }
        }
    }
}

/// Has the SSH of the image find its keys, and a user whom it knows.
fn with_ssh(manifest: &mut Value) {
    let spec = &mut manifest["spec"];
    spec["framework"]["mpi"]["sshAuthMountPath"] = images::SSH_KEYS.into();
    for role in spec["roles"].as_array_mut().unwrap() {
        let is_worker = role["name"] == "worker";
        lab::over_ssh(&mut role["template"], is_worker);
    }
}

/// Two workers with two slots each, of which only three are wanted.
fn slots_and_np_are_honoured() {
    let (lab, _operator) = Lab::with_agent("slots");
    let all = [&OPEN_MPI_4, &OPEN_MPI_5, &MPICH, &INTEL];
    for implementation in all {
        let script = format!("{} -np 3 {}", implementation.mpirun, implementation.program);
        let options = json!({"slotsPerWorker": 2});
        let manifest = mpi_job(implementation.lab, implementation, 2, &script, &options);
        lab.apply(&manifest.to_string()).unwrap();
    }
    for implementation in all {
        let name = implementation.lab;
        lab.wait_until_ended(name, "Succeeded");
        let log = lab.logs(&format!("{name}-launcher-0"));
        let mut hosts: Vec<_> = ranks(&log, 3).into_iter().map(|(host, _)| host).collect();
        assert_eq!(hosts.len(), 3, "{name}: {log}");
        assert_eq!(log.matches(" of 3 on ").count(), 3, "{name}: {log}");
        hosts.sort();
        let (first, second) = (format!("{name}-worker-0"), format!("{name}-worker-1"));
        if name == OPEN_MPI_4.lab {
            assert_eq!(hosts, [&*first, &*first, &*second], "{log}");
        }
        // Which of them has two is the implementation's choice.
        hosts.dedup();
        assert_eq!(hosts, [first, second], "{name}: {log}");
    }
}

/// Waits until the launcher's list has so many workers, says so and what else lists them.
const WATCH: &str = r#"
sees() {
    until [ "$(grep -c worker /etc/mpi/hostfile)" = $1 ]; do sleep 0.1; done
    until [ "$(/etc/mpi/discover_hosts.sh | wc -l)" = $1 ]; do sleep 0.1; done
    echo "sees $1: $(sed 's/\..* / /' /job/hosts | tr '\n' ' ')and $(/etc/mpi/discover_hosts.sh | sed 's/\..*:/:/' | tr '\n' ' ')"
}
sees 2; sees 3; sees 2
"#;

fn host_files_follow_the_workers_and_progress_is_told() {
    let (lab, _operator, aliases) = Lab::with_observer("follow");
    let script = format!(
        "echo step=1 total=7 >>$TRAINYARD_PROGRESS\n{WATCH}\n{} -np 2 {} && echo step=7 loss=0.25 >>$TRAINYARD_PROGRESS",
        OPEN_MPI_4.mpirun, OPEN_MPI_4.program
    );
    let options = json!({"hostFiles": [{"path": "/job/hosts", "format": "DeepSpeed"}]});
    let mut manifest = mpi_job("grow", &OPEN_MPI_4, 2, &script, &options);
    manifest["spec"]["runPolicy"]["updatePolicy"] = "Roll".into();
    manifest["spec"]["progress"] = "Report".into();
    for role in manifest["spec"]["roles"].as_array_mut().unwrap() {
        role["template"]["spec"]["hostAliases"] = aliases.clone();
        role["template"]["spec"]["terminationGracePeriodSeconds"] = 20.into();
    }
    lab.apply(&manifest.to_string()).unwrap();
    let launcher = "grow-launcher-0";
    let sees = |line: &str| {
        lab.until(&format!("the launcher {line}"), || {
            let log = lab.try_logs(launcher)?;
            if log.lines().any(|said| said == line) {
                Ok(())
            } else {
                Err(log)
            }
        });
    };
    let resize = |workers: u32| {
        let mut roles = manifest["spec"]["roles"].clone();
        roles[1]["replicas"] = workers.into();
        lab.merge("tj grow", &json!({"spec": {"roles": roles}}));
    };
    let two = "sees 2: grow-worker-0 slots=1 grow-worker-1 slots=1 and grow-worker-0:1 grow-worker-1:1 ";
    sees(two);
    lab.until("the first values are in the status", || {
        let progress = lab.get("tj grow")["status"]["progress"].clone();
        if progress["step"] == 1 {
            Ok(())
        } else {
            Err(progress.to_string())
        }
    });
    resize(3);
    sees(
        "sees 3: grow-worker-0 slots=1 grow-worker-1 slots=1 grow-worker-2 slots=1 and \
         grow-worker-0:1 grow-worker-1:1 grow-worker-2:1 ",
    );
    lab.wait_for_phase("grow", "Running");
    resize(2);
    let status = lab.wait_until_ended("grow", "Succeeded")["status"].clone();
    lab.until("the last values are in the status", || {
        let progress = lab.get("tj grow")["status"]["progress"].clone();
        let is_last =
            progress["step"] == 7 && progress["total"] == 7 && progress["metrics"]["loss"] == "0.25";
        if is_last {
            Ok(())
        } else {
            Err(progress.to_string())
        }
    });
    let log = lab.logs(launcher);
    assert_eq!(log.lines().filter(|line| *line == two).count(), 2, "{log}");
    assert_eq!(ranks(&log, 2).len(), 2, "{log}");
    assert_eq!(
        (
            &status["restarts"]["failures"],
            &status["restarts"]["disruptions"]
        ),
        (&json!(0), &json!(0))
    );
}

/// What the account of one job may not: other jobs, other pods, other verbs. Also when the launcher
/// asks, and not only when somebody reads the rules.
fn the_right_of_a_job_is_for_its_own_workers_alone() {
    let (lab, _operator) = Lab::with_agent("right");
    let shell = "/etc/mpi/kubexec.sh";
    let domain = format!("{}.svc.cluster.local", lab.namespace);
    // The second is refused again and again until it is given up.
    let script = format!(
        "{shell} mine-worker-1.mine.{domain} 'echo in $(hostname); exit 7'; echo code $?; \
         {shell} other-worker-0.other.{domain} 'echo in $(hostname)' 2>&1; echo code $?"
    );
    for (name, script) in [("mine", &*script), ("other", "sleep 300")] {
        let manifest = mpi_job(name, &OPEN_MPI_4, 2, script, &json!({"attach": "Exec"}));
        lab.apply(&manifest.to_string()).unwrap();
    }
    lab.wait_until_ended("mine", "Succeeded");
    let log = lab.logs("mine-launcher-0");
    assert!(log.contains("in mine-worker-1\ncode 7\n"), "{log}");
    assert!(!log.contains("in other-worker-0"), "{log}");
    // Whatever else went wrong on a busy machine: that it may not is what is told.
    let refusal = format!(
        "trainyard-agent: other-worker-0.other.{domain}: the server answers 403: pods \"other-worker-0\" is forbidden"
    );
    assert!(log.contains(&refusal), "{log}");
    assert!(log.ends_with("; given up after 10 s\ncode 255\n"), "{log}");
    let rules = |name: &str| lab.get(&format!("role {name}"))["rules"].clone();
    let expected = json!([{
        "apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create", "get"],
        "resourceNames": ["other-worker-0", "other-worker-1"],
    }]);
    assert_eq!(rules("other-mpi"), expected);
    lab.until("a job that has ended has no right", || match rules("mine-mpi") {
        Value::Array(rules) if !rules.is_empty() => Err(json!(rules).to_string()),
        _ => Ok(()),
    });
}
