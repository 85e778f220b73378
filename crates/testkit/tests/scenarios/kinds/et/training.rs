//! A training with Horovod by et-operator's own example manifests.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use trainyard_testkit::hex::hex;
use trainyard_testkit::images;
use trainyard_testkit::lab::Lab;

use super::manifests::{self, ACCELERATOR};
use super::{JOB, SCALE_IN, SCALE_OUT, STARTED, condition, end, holding, names, types};
use crate::elastic::{assert_no_step_is_lost, wait_until_trained_by};
use crate::trainings::{nodes, result};

const NAME: &str = "elastic-training";
const LAUNCHER: &str = "elastic-training-launcher";

/// The line of the manifest, with another program: that of an example, which has no file in the
/// image and no volume in the manifest. It ends after it had the sizes that are asked for here.
fn line() -> String {
    let example = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/horovod-elastic/train.py"
    );
    let program = hex(&fs::read(Path::new(example)).unwrap());
    format!(
        "export HOME=/tmp OMP_NUM_THREADS=1 SIZES='2 3 2 1'\n\
         horovodrun -np 2 --min-np 1 --max-np 9 --host-discovery-script /etc/edl/discover_hosts.sh \
         python3 -c \"exec(bytes.fromhex('{program}'))\""
    )
}

/// Creates a request of an example, and waits until it has succeeded and its job says so.
fn carry_out(lab: &Lab, kind: &str, file: &str) -> Value {
    let name = lab.create(manifests::read(file));
    let ended = end(lab, &format!("{kind} {name}"));
    assert_eq!(
        types(&ended),
        ["Created", "Scaling", "ScriptExecuted", "ScaleSucceeded"],
        "{ended:#}"
    );
    assert_eq!(ended["status"]["phase"], "ScaleSucceeded");
    lab.until("the job says that its request has succeeded", || {
        let job = lab.get(&format!("{JOB} {NAME}"));
        let mut expected = STARTED.to_vec();
        expected.push("ScaleSucceeded");
        let is_so = holding(&job) == expected && job["status"]["phase"] == "Running";
        is_so.then_some(()).ok_or_else(|| job["status"].to_string())
    });
    ended["status"].clone()
}

/// Its walk-through, with a real training: more workers, fewer by number and by name, and no step
/// is lost.
pub fn et_operators_own_manifests_train_with_horovod() {
    let (lab, _operator, aliases) = Lab::with_kinds_and_scripts("et-horovod");
    lab.offer(ACCELERATOR, "16");
    let job = manifests::job("training_job.yaml", &aliases, images::HOROVOD, &line());
    lab.apply_one(job).unwrap();
    let what = format!("{JOB} {NAME}");
    let running = condition(&lab, &what, "Running", "True");
    assert_eq!(holding(&running), STARTED, "{running:#}");
    wait_until_trained_by(&lab, LAUNCHER, 2);
    assert_eq!(nodes(&lab).len(), 2);

    let more = carry_out(&lab, SCALE_OUT, "scale_out.yaml");
    assert_eq!(more["addPods"], json!(["elastic-training-worker-2"]));
    wait_until_trained_by(&lab, LAUNCHER, 3);
    let fewer = carry_out(&lab, SCALE_IN, "scale_in_count.yaml");
    assert_eq!(fewer["toDeletePods"], json!(["elastic-training-worker-2"]));
    wait_until_trained_by(&lab, LAUNCHER, 2);
    let named = carry_out(&lab, SCALE_IN, "scale_in_pod.yaml");
    assert_eq!(named["toDeletePods"], json!(["elastic-training-worker-1"]));
    wait_until_trained_by(&lab, LAUNCHER, 1);
    // A kubelet takes its time to end the containers of pods that are deleted.
    lab.until("one worker is left", || {
        let workers = lab.get("pods -l training-job-name=elastic-training,training-job-role=worker");
        let is_so = names(&workers) == ["elastic-training-worker-0"];
        is_so.then_some(()).ok_or_else(|| names(&workers).join(" "))
    });

    let ended = condition(&lab, &what, "Succeeded", "True");
    let mut expected = STARTED.to_vec();
    expected.extend(["Scaling", "ScaleSucceeded", "Succeeded"]);
    assert_eq!(types(&ended), expected, "{ended:#}");
    assert_eq!(ended["status"]["phase"], "Succeeded");
    assert!(ended["status"]["restartCount"].is_null(), "{ended:#}");
    let log = lab.logs(LAUNCHER);
    let of_rank_zero: Vec<&str> = log.lines().filter(|line| line.starts_with("[0]")).collect();
    assert_no_step_is_lost(&of_rank_zero.join("\n"));
    assert!(result(&log, "final loss ") <= 1e-2, "{log}");
}
