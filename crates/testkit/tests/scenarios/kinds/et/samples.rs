//! et-operator's samples: requests with scripts, and a launcher that calls `ssh` and `pdsh`.

use serde_json::{Value, json};
use trainyard_testkit::images;
use trainyard_testkit::lab::Lab;

use super::manifests::{self, ACCELERATOR};
use super::{JOB, SCALE_IN, SCALE_OUT, STARTED, condition, end, holding, types};

const NAME: &str = "trainingjob-sample";

/// Reaches workers by name, as over SSH, and shows what scripts are called with until it is ended.
const LAUNCHER: &str = "\
set -e
touch /var/scaled/said
for n in 0 1 2; do /usr/local/bin/ssh -o StrictHostKeyChecking=no trainingjob-sample-worker-$n 'echo ssh: $(hostname)'; done
/usr/local/bin/pdsh -w trainingjob-sample-worker-0,trainingjob-sample-worker-2 'echo pdsh'
exec tail -f /var/scaled/said
";

/// Creates a request of a sample, and waits for its end.
fn carry_out(lab: &Lab, kind: &str, file: &str) -> Value {
    let name = lab.create(manifests::read(file));
    let ended = end(lab, &format!("{kind} {name}"));
    assert_eq!(
        types(&ended),
        ["Created", "Scaling", "ScriptExecuted", "ScaleSucceeded"],
        "{ended:#}"
    );
    assert_eq!(
        holding(&ended),
        ["Created", "ScriptExecuted", "ScaleSucceeded"],
        "{ended:#}"
    );
    ended["status"].clone()
}

/// The contract of scripts: `pod:slots,...` comes last, and variables arrive as they are.
pub fn et_operators_samples_run_their_scripts() {
    let (lab, _operator, aliases) = Lab::with_kinds_and_scripts("et-samples");
    lab.offer(ACCELERATOR, "16");
    let job = manifests::job(
        "kai_v1alpha1_trainingjob.yaml",
        &aliases,
        images::SCALER,
        LAUNCHER,
    );
    lab.apply_one(job).unwrap();
    let what = format!("{JOB} {NAME}");
    let running = condition(&lab, &what, "Running", "True");
    assert_eq!(holding(&running), STARTED, "{running:#}");

    let more = carry_out(&lab, SCALE_OUT, "kai_v1alpha1_scaleout.yaml");
    let both = json!(["trainingjob-sample-worker-3", "trainingjob-sample-worker-4"]);
    assert_eq!(more["addPods"], both);
    let fewer = carry_out(&lab, SCALE_IN, "kai_v1alpha1_scalein.yaml");
    assert_eq!(fewer["toDeletePods"], both);
    let named = carry_out(&lab, SCALE_IN, "kai_v1alpha1_scalein-2.yaml");
    assert_eq!(named["toDeletePods"], json!(["trainingjob-sample-worker-1"]));

    let launcher = format!("{NAME}-launcher");
    for line in [
        "ssh: trainingjob-sample-worker-0",
        "ssh: trainingjob-sample-worker-1",
        "ssh: trainingjob-sample-worker-2",
        "trainingjob-sample-worker-0: pdsh",
        "trainingjob-sample-worker-2: pdsh",
        "--add trainingjob-sample-worker-3:1,trainingjob-sample-worker-4:1 test1 test2 test3",
        "--delete trainingjob-sample-worker-3:1,trainingjob-sample-worker-4:1 test1 test2 test3",
        "--delete trainingjob-sample-worker-1:1 test1 test2 test3",
    ] {
        lab.until(&format!("the log says {line:?}"), || {
            let log = lab.try_logs(&launcher)?;
            let is_there = log.lines().any(|known| known == line);
            is_there.then_some(()).ok_or(log)
        });
    }
}
