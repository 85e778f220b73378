//! Jobs that are changed while they run.

use serde_json::json;
use trainyard_testkit::lab::Lab;

use super::{BDAP, bdap, condition, names, ranks};

/// Waits until so many workers are there and ready.
fn workers(lab: &Lab, what: &str, count: usize) {
    let wanted = format!("{count}/{count}");
    lab.until(&format!("{count} workers are ready"), || {
        let pods = lab.get("pods -l trainyard.dev/role=worker");
        let ready = lab.get(what)["status"]["readyWorkers"].clone();
        if names(&pods).len() == count && ready == wanted {
            Ok(())
        } else {
            Err(format!("{:?} {ready}", names(&pods)))
        }
    });
}

/// Waits until a launcher that runs has said a line.
fn says(lab: &Lab, launcher: &str, line: &str) {
    lab.until(&format!("{launcher} says {line:?}"), || {
        let log = lab.try_logs(launcher)?;
        if log.lines().any(|said| said == line) {
            Ok(())
        } else {
            Err(log)
        }
    });
}

/// Says what the list of hosts has, once it has so many.
const SEES: &str = r#"
sees() {
    until [ "$(wc -l <$OMPI_MCA_orte_default_hostfile)" = $1 ]; do sleep 0.1; done
    echo "sees" $(cat $OMPI_MCA_orte_default_hostfile)
}
sees 2; sees 3; sees 1
exec mpirun.openmpi -np 1 /usr/local/bin/allreduce-openmpi4
"#;

/// Bug of its operator: a changed number of workers changed nothing.
pub fn editing_num_workers_changes_workers_and_the_host_file() {
    let (lab, _operator, aliases) = Lab::with_kinds_and_observer("edited");
    let mut job = bdap("grows", 2);
    for role in ["launcherTemplate", "workerTemplate"] {
        job["spec"][role]["spec"]["hostAliases"] = aliases.clone();
    }
    job["spec"]["launcherTemplate"]["spec"]["containers"][0]["args"] = json!([SEES]);
    lab.apply_one(job).unwrap();
    let what = format!("{BDAP} grows");
    let launcher = "grows-launcher";
    says(
        &lab,
        launcher,
        "sees grows-worker-0 slots=1 grows-worker-1 slots=1",
    );
    lab.merge(&what, &json!({"spec": {"numWorkers": 3}}));
    workers(&lab, &what, 3);
    says(
        &lab,
        launcher,
        "sees grows-worker-0 slots=1 grows-worker-1 slots=1 grows-worker-2 slots=1",
    );
    // When it has seen the last list, it goes on to its end with what is left.
    lab.merge(&what, &json!({"spec": {"numWorkers": 1}}));
    says(&lab, launcher, "sees grows-worker-0 slots=1");
    condition(&lab, &what, "Succeeded", "True");
    let log = lab.logs(launcher);
    assert_eq!(ranks(&log, 1), ["grows-worker-0"], "{log}");
    let child = lab.get("tj grows");
    let restarts = &child["status"]["restarts"];
    assert_eq!(
        (&restarts["failures"], &restarts["disruptions"]),
        (&json!(0), &json!(0)),
        "{restarts}"
    );
}

/// The launcher goes on, and finds what is new in all of them.
pub fn editing_the_worker_template_rolls_workers() {
    let (lab, _operator) = Lab::with_kinds("rolled");
    let mut job = bdap("rolls", 2);
    let script = "for worker in 0 1; do \
                  until [ \"$(/etc/mpi/kubexec.sh rolls-worker-$worker 'echo $COURSE')\" = two ]; do sleep 0.2; done; done; \
                  exec mpirun.openmpi -np 2 /usr/local/bin/allreduce-openmpi4";
    job["spec"]["launcherTemplate"]["spec"]["containers"][0]["args"] = json!([script]);
    lab.apply_one(job.clone()).unwrap();
    let what = format!("{BDAP} rolls");
    condition(&lab, &what, "Running", "True");
    workers(&lab, &what, 2);
    let launcher = lab.get("pod rolls-launcher")["metadata"]["uid"].clone();
    let template = &mut job["spec"]["workerTemplate"];
    template["spec"]["containers"][0]["env"] = json!([{"name": "COURSE", "value": "two"}]);
    lab.merge(&what, &json!({"spec": {"workerTemplate": template}}));
    condition(&lab, &what, "Succeeded", "True");
    let ended = lab.get("pod rolls-launcher");
    assert_eq!(ended["metadata"]["uid"], launcher, "{ended:#}");
    let log = lab.logs("rolls-launcher");
    assert_eq!(ranks(&log, 2), ["rolls-worker-0", "rolls-worker-1"], "{log}");
}
