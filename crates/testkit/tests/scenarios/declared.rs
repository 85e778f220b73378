//! Frameworks that are declared while the operator runs: their jobs train, and nothing is started
//! anew when a declaration is added, broken, mended, changed or deleted.

use serde_json::{Value, json};
use trainyard_testkit::lab::{Image, Lab, Role, Scenarios, job, template};
use trainyard_testkit::{images, scenarios};

pub const SCENARIOS: Scenarios = scenarios!(
    "declared",
    &[Image::PYTHON],
    [
        a_framework_that_is_added_trains_a_job,
        a_broken_framework_is_reported_and_mended,
        jobs_that_run_keep_their_framework,
    ]
);

const RING: &str = include_str!("declared/ring.py");

/// A Framework, which goes away with the test: it belongs to no namespace.
struct Framework<'a> {
    lab: &'a Lab,
    name: String,
}

impl<'a> Framework<'a> {
    /// One whose name no other scenario has.
    fn new(lab: &'a Lab) -> Self {
        let name = lab.namespace.clone();
        Self { lab, name }
    }

    /// Creates or replaces it.
    fn declare(&self, spec: &Value) {
        let object = json!({
            "apiVersion": "trainyard.dev/v1alpha1", "kind": "Framework",
            "metadata": {"name": self.name}, "spec": spec,
        });
        self.lab.until("the Framework is written", || {
            // An operator may write its status at the same moment.
            self.lab
                .apply_one(object.clone())
                .map_err(|error| error.to_string())
        });
    }

    /// Waits until its status says whether it can be used. Returns what else it says.
    fn wait_until_ready_is(&self, wanted: &str) -> String {
        self.lab.until(&format!("the Framework's Ready is {wanted}"), || {
            let object = self.lab.get(&format!("framework {}", self.name));
            let status = &object["status"];
            let condition = &status["conditions"][0];
            let is_seen = status["observedGeneration"] == object["metadata"]["generation"];
            if is_seen && condition["status"] == wanted {
                Ok(condition["message"].as_str().unwrap_or_default().to_owned())
            } else {
                Err(format!("{object:#}"))
            }
        })
    }

    /// Waits for an event about it.
    fn wait_for_event(&self, wanted: &str) {
        self.lab.until(&format!("an event {wanted}"), || {
            let events = self.lab.cluster_events(&self.name);
            let is_told = events.lines().any(|line| line.starts_with(wanted));
            if is_told { Ok(()) } else { Err(events) }
        });
    }

    /// A job that says the colour which it was told, and ends when it is terminated.
    fn start(&self, name: &str) {
        let script = "trap 'exit 0' TERM; echo colour $COLOUR; sleep 600 & wait $!";
        self.lab
            .apply(&job(name, &self.name, &[Role::worker(2, script)], ""))
            .unwrap();
    }
}

impl Drop for Framework<'_> {
    fn drop(&mut self) {
        let what = format!("framework {}", self.name);
        if self.lab.try_get(&what).is_ok() {
            self.lab.delete(&what);
        }
    }
}

/// A framework that tells pods a colour.
fn colour(expression: &str) -> Value {
    json!({"env": [{"name": "COLOUR", "value": expression}]})
}

/// Waits until a job says that it was not accepted.
fn wait_for_refusal(lab: &Lab, name: &str) -> String {
    lab.until(&format!("{name} says why it does not start"), || {
        let status = lab.get(&format!("tj {name}"))["status"].clone();
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let refused = conditions
            .filter(|c| c["type"] == "Accepted" && c["status"] == "False" && c["reason"] == "Invalid");
        let mut messages = refused.filter_map(|condition| condition["message"].as_str());
        messages
            .next()
            .map(ToOwned::to_owned)
            .ok_or_else(|| format!("{status:#}"))
    })
}

/// The ids of a job's pods.
fn ids(lab: &Lab, name: &str) -> Vec<Value> {
    let pods = lab.get(&format!("pods -l trainyard.dev/job={name}"));
    let pods = pods["items"].as_array().into_iter().flatten();
    let mut ids: Vec<Value> = pods.map(|pod| pod["metadata"]["uid"].clone()).collect();
    ids.sort_by_key(ToString::to_string);
    ids
}

fn wait_for_colour(lab: &Lab, pod: &str, colour: &str) {
    lab.until(&format!("{pod} is {colour}"), || match lab.try_logs(pod)? {
        log if log.trim() == format!("colour {colour}") => Ok(()),
        log => Err(log),
    });
}

fn a_framework_that_is_added_trains_a_job() {
    let (lab, _operator) = Lab::with_operator("added");
    let framework = Framework::new(&lab);
    let main = json!({"command": ["python3", "-u", "-c", RING]});
    let training = json!({
        "apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "sum"},
        "spec": {
            "framework": {"name": framework.name, "params": {"port": 7100}},
            "roles": [{
                "name": "worker", "replicas": 3, "restartPolicy": "Never",
                "placement": {"spread": "Preferred"},
                "template": template(images::PYTHON, &main),
            }],
            "runPolicy": {"cleanPodPolicy": "None", "backoffLimit": 0},
        },
    });
    // The job comes first, and waits.
    lab.apply(&training.to_string()).unwrap();
    let message = wait_for_refusal(&lab, "sum");
    let expected = format!("spec.framework.name: there is no framework {:?}", framework.name);
    assert!(message.starts_with(&expected), "{message}");
    framework.declare(&json!({
        "roles": [{"name": "worker", "required": true}],
        "trainsAsOne": true,
        "params": {"port": {"type": "integer", "default": 7000, "minimum": 1024}},
        "env": [
            {"name": "RING_NEXT", "value": "job.hosts[(replica.rank + 1) % job.replicas]"},
            {"name": "RING_PORT", "value": "params.port"},
            {"name": "RING_RANK", "value": "replica.rank"},
        ],
        "ports": [{"name": "ring", "number": "params.port"}],
        "files": [{"path": "/ring/hosts", "content": "job.hosts.join('\\n') + '\\n'"}],
        "validations": [{"rule": "job.replicas > 1", "message": "a ring has two pods", "path": "spec.roles"}],
    }));
    framework.wait_until_ready_is("True");
    framework.wait_for_event("Valid ");
    lab.wait_until_ended("sum", "Succeeded");
    for rank in 0..3 {
        let log = lab.logs(&format!("sum-worker-{rank}"));
        assert!(
            log.contains("learned slope 3.000000 and offset -2.000000"),
            "{log}"
        );
    }
    let pod = lab.get("pod sum-worker-1");
    let port = &pod["spec"]["containers"][0]["ports"][0];
    assert_eq!(
        (&port["name"], &port["containerPort"]),
        (&json!("ring"), &json!(7100))
    );
}

fn a_broken_framework_is_reported_and_mended() {
    let (lab, _operator) = Lab::with_operator("broken");
    let framework = Framework::new(&lab);
    framework.declare(&colour("job.nme"));
    let problem = "spec.env[0].value: column 1: job has no field \"nme\": it has name, namespace";
    let message = framework.wait_until_ready_is("False");
    assert!(message.starts_with(problem), "{message}");
    framework.wait_for_event(&format!("Invalid {problem}"));
    framework.start("waits");
    let message = wait_for_refusal(&lab, "waits");
    let expected = format!(
        "spec.framework.name: the Framework {:?} can't be used until its declaration is corrected: {problem}",
        framework.name
    );
    assert!(message.starts_with(&expected), "{message}");
    // Others notice nothing.
    lab.apply(&job("other", "custom", &[Role::worker(1, "true")], ""))
        .unwrap();
    lab.wait_until_ended("other", "Succeeded");
    assert_eq!(ids(&lab, "waits"), [Value::Null; 0]);
    framework.declare(&colour("job.name + '-red'"));
    framework.wait_until_ready_is("True");
    wait_for_colour(&lab, "waits-worker-1", "waits-red");
    lab.wait_for_phase("waits", "Running");
}

fn jobs_that_run_keep_their_framework() {
    let (lab, _operator) = Lab::with_operator("keeps");
    let framework = Framework::new(&lab);
    framework.declare(&colour("'red'"));
    framework.start("old");
    lab.wait_for_phase("old", "Running");
    wait_for_colour(&lab, "old-worker-0", "red");
    let before = ids(&lab, "old");
    assert_eq!(before.len(), 2);
    // A job that comes later shows that the operator has seen the change.
    framework.declare(&colour("'blue'"));
    framework.wait_until_ready_is("True");
    framework.start("new");
    wait_for_colour(&lab, "new-worker-1", "blue");
    lab.wait_for_phase("new", "Running");
    assert_eq!(ids(&lab, "old"), before, "its pods run on");
    framework.declare(&colour("'blue' + 1"));
    framework.wait_until_ready_is("False");
    framework.start("late");
    let message = wait_for_refusal(&lab, "late");
    assert!(
        message.contains("spec.env[0].value: column 1: + can't be used"),
        "{message}"
    );
    assert_eq!(ids(&lab, "old"), before);
    lab.delete(&format!("framework {}", framework.name));
    framework.start("later");
    let message = wait_for_refusal(&lab, "later");
    assert!(
        message.starts_with("spec.framework.name: there is no framework"),
        "{message}"
    );
    assert_eq!(ids(&lab, "old"), before, "its pods run on without the Framework");
    // A pod that is replaced is as the others.
    lab.delete("pod old-worker-1");
    lab.until("the pod is replaced", || {
        let now = ids(&lab, "old");
        let is_replaced = now.len() == 2 && now != before;
        if is_replaced {
            Ok(())
        } else {
            Err(format!("{now:?}"))
        }
    });
    wait_for_colour(&lab, "old-worker-1", "red");
    lab.wait_for_phase("old", "Running");
    for pod in ["old-worker-0", "old-worker-1"] {
        lab.exec(pod, None, &["kill", "1"], "").unwrap();
    }
    lab.wait_until_ended("old", "Succeeded");
}
