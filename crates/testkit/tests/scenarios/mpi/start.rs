//! What launchers and workers need to start, and what may befall them meanwhile.

use serde_json::{Value, json};
use trainyard_testkit::images;
use trainyard_testkit::lab::Lab;

use super::{OPEN_MPI_4, mpi_job};

/// Nobody whom an image knows.
const SOMEBODY: u32 = 123_456;

/// A script that runs a command in each of two workers, as mpirun would.
fn in_both(lab: &Lab, job: &str, command: &str) -> String {
    let domain = format!("{job}.{}.svc.cluster.local", lab.namespace);
    format!("for i in 0 1; do /etc/mpi/kubexec.sh {job}-worker-$i.{domain} '{command}' || exit; done")
}

/// All that the agent is in pods, where nothing can be written, nothing is mounted by the user and
/// nobody knows who it runs as: `install` and `rsh` everywhere, and in the workers the server
/// alone, a command beside it, or what the API server starts.
pub fn the_agent_needs_neither_a_user_nor_a_place_to_write() {
    let (lab, _operator) = Lab::with_agent("modest");
    let jobs = [
        ("serve", "Agent", Value::Null),
        ("run", "Agent", json!(["sleep", "1000"])),
        ("attend", "Exec", Value::Null),
    ];
    let root = r#"$(grep " / " /proc/mounts | tail -n 1 | cut -d " " -f 4 | cut -c 1-2)"#;
    for (name, way, command) in &jobs {
        let script = in_both(&lab, name, &format!("echo $(hostname) $(id -u) {root}"));
        let mut manifest = mpi_job(name, &OPEN_MPI_4, 2, &script, &json!({"attach": way}));
        for role in manifest["spec"]["roles"].as_array_mut().unwrap() {
            let is_worker = role["name"] == "worker";
            let pod = role["template"]["spec"].as_object_mut().unwrap();
            pod.remove("volumes").unwrap();
            pod["securityContext"]["runAsUser"] = SOMEBODY.into();
            let container = pod["containers"][0].as_object_mut().unwrap();
            container.remove("volumeMounts").unwrap();
            container["image"] = images::BUSYBOX.into();
            container["securityContext"]["readOnlyRootFilesystem"] = true.into();
            if is_worker && !command.is_null() {
                container.insert("command".to_owned(), command.clone());
            }
        }
        lab.apply(&manifest.to_string()).unwrap();
    }
    for (name, ..) in &jobs {
        lab.wait_until_ended(name, "Succeeded");
        let log = lab.logs(&format!("{name}-launcher-0"));
        let expected = [0, 1].map(|i| format!("{name}-worker-{i} {SOMEBODY} ro"));
        assert_eq!(log.lines().collect::<Vec<_>>(), expected);
    }
}

/// As a machine that kills for want of memory does it, before there is a launcher that could need
/// the worker.
pub fn a_worker_that_is_killed_during_the_start_is_replaced_and_waited_for() {
    let (lab, _operator) = Lab::with_agent("early");
    let script = in_both(&lab, "early", "echo in $(hostname)");
    let mut manifest = mpi_job("early", &OPEN_MPI_4, 2, &script, &json!({}));
    let worker = &mut manifest["spec"]["roles"][1];
    worker["restartPolicy"] = "Always".into();
    worker["restartScope"] = "Pod".into();
    worker["template"]["spec"]["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1});
    lab.apply(&manifest.to_string()).unwrap();
    let is_ready = |pod: &Value| pod["status"]["containerStatuses"][0]["ready"] == true;
    let becomes_ready = |pod: &str| {
        lab.until(&format!("{pod} can be told that it is ready"), || {
            match lab.exec(pod, None, &["touch", "/tmp/ready"], "") {
                Ok(outcome) if outcome.code == 0 => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
        lab.until(&format!("{pod} is ready"), || {
            let pod = lab.try_get(&format!("pod {pod}"))?;
            if is_ready(&pod) {
                Ok(())
            } else {
                Err(pod["status"].to_string())
            }
        });
    };
    let runs = |but: &Value| {
        lab.until("the second worker runs", || {
            let pod = lab.try_get("pod early-worker-1")?;
            let uid = pod["metadata"]["uid"].clone();
            if pod["status"]["phase"] == "Running" && uid != *but {
                Ok(uid)
            } else {
                Err(pod["status"].to_string())
            }
        })
    };
    becomes_ready("early-worker-0");
    let first = runs(&Value::Null);
    lab.kill("early-worker-1");
    runs(&first);
    let there = lab.pods("early");
    assert!(
        !there.contains(&"early-launcher-0".to_owned()),
        "it waits for all workers: {there:?}"
    );
    becomes_ready("early-worker-1");
    let status = lab.wait_until_ended("early", "Succeeded")["status"].clone();
    assert_eq!(status["restarts"]["failures"], 1, "{status:#}");
    assert_eq!(status["rootCause"]["pod"], "early-worker-1", "{status:#}");
    let log = lab.logs("early-launcher-0");
    assert_eq!(log, "in early-worker-0\nin early-worker-1\n");
}
