//! Real trainings between pods, on real nodes and on the embedded cluster: the examples as they
//! are, but for their images. Their programs learn what no pod can learn without the others, and
//! fail if they do not.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use trainyard_testkit::framework_table::{self, Proof};
use trainyard_testkit::lab::{Image, Lab, Scenarios};
use trainyard_testkit::{images, scenarios};

pub const SMALL: Scenarios = scenarios!(
    "trainings",
    &[Image::AGENT, Image::PYTHON, Image::FRAMEWORKS_SMALL],
    [
        dask,
        mxnet,
        standalone,
        xgboost,
        stand_ins_of_bagua_and_custom,
        examples_of_other_operators,
    ]
);

pub const TORCH: Scenarios = scenarios!(
    "torch_trainings",
    &[Image::HOROVOD],
    [deepspeed_on_torchrun, pytorch_ddp, pytorch_on_torchrun]
);

/// Those of `make test-frameworks` alone: their image takes minutes to install and to load.
pub const LARGE: Scenarios = scenarios!(
    "large_trainings",
    &[Image::FRAMEWORKS_LARGE],
    [
        jax,
        paddle,
        tensorflow_with_mirrored_workers,
        tensorflow_with_parameter_servers,
    ]
);

/// The documents of an example: the job, and what it needs.
pub fn documents(example: &str) -> Vec<Value> {
    manifests(&format!("{example}/job.yaml"))
}

fn manifests(file: &str) -> Vec<Value> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let text = std::fs::read_to_string(examples.join(file)).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

/// An example that trains.
struct Training {
    example: &'static str,
    image: &'static str,
    /// The pod whose log tells the result.
    told_by: &'static str,
    /// What stands before the result in that log.
    says: &'static str,
    /// What the result must not exceed.
    at_most: f64,
}

/// Applies an example and what it needs. `change` changes the template of every role. Returns the
/// name of the framework.
pub fn start(lab: &Lab, example: &str, image: &str, change: impl Fn(&mut Value)) -> String {
    let mut documents = documents(example);
    let job = &mut documents[0];
    let framework = job["spec"]["framework"]["name"].as_str().unwrap().to_owned();
    // Pods stay when all is over, for their logs.
    job["spec"]["runPolicy"]["cleanPodPolicy"] = "None".into();
    for role in job["spec"]["roles"].as_array_mut().unwrap() {
        let template = &mut role["template"];
        template["spec"]["containers"][0]["image"] = image.into();
        change(template);
    }
    // What the pods need comes first, so that none waits for it.
    for document in documents.iter().rev() {
        lab.apply(&document.to_string()).unwrap();
    }
    framework
}

/// Trains until the job has succeeded.
fn train(training: &Training, change: impl Fn(&mut Value)) {
    let Training { example, image, .. } = training;
    let (lab, _operator) = Lab::with_operator(example);
    let framework = start(&lab, example, image, change);
    let ended = lab.wait_until_ended(example, "Succeeded");
    assert_eq!(nodes(&lab).len(), 2, "{ended:#}");
    let log = lab.logs(training.told_by);
    let result = result(&log, training.says);
    assert!(result <= training.at_most, "{result}: {log}");
    let results = Path::new(env!("CARGO_TARGET_TMPDIR"));
    framework_table::record(results, &framework, Proof::Training, lab.is_embedded());
}

/// The nodes that took part.
pub fn nodes(lab: &Lab) -> BTreeSet<String> {
    let pods = lab.get("pods");
    let pods = pods["items"].as_array().into_iter().flatten();
    pods.map(|pod| pod["spec"]["nodeName"].to_string()).collect()
}

/// The number after some words of a log.
pub fn result(log: &str, after: &str) -> f64 {
    let found = log.lines().find_map(|line| line.split_once(after));
    let (_, number) = found.unwrap_or_else(|| panic!("it does not say {after:?}: {log}"));
    // Processes that share a log end their lines with a further write, and another may come first.
    let number: String = number
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    number.parse().unwrap_or_else(|_| panic!("{number:?}: {log}"))
}

/// An example that prints its loss.
fn example(example: &'static str, image: &'static str, told_by: &'static str) -> Training {
    Training {
        example,
        image,
        told_by,
        says: "final loss ",
        at_most: 1e-3,
    }
}

fn as_it_is(_template: &mut Value) {}

fn dask() {
    train(
        &example("dask", images::FRAMEWORKS_SMALL, "dask-launcher-0"),
        as_it_is,
    );
}

fn mxnet() {
    train(
        &example("mxnet", images::FRAMEWORKS_SMALL, "mxnet-worker-0"),
        as_it_is,
    );
}

fn standalone() {
    let training = Training {
        at_most: 1e-2,
        ..example("standalone", images::PYTHON, "standalone-worker-0")
    };
    train(&training, as_it_is);
}

fn xgboost() {
    let training = Training {
        says: "final error ",
        at_most: 0.05,
        ..example("xgboost", images::FRAMEWORKS_SMALL, "xgboost-worker-0")
    };
    train(&training, as_it_is);
}

/// Examples that train with no framework, so that the table of frameworks does not have them.
fn stand_ins_of_bagua_and_custom() {
    let (lab, _operator) = Lab::with_operator("stand-ins");
    for example in ["bagua", "custom"] {
        start(&lab, example, images::PYTHON, as_it_is);
    }
    lab.wait_until_ended("bagua", "Succeeded");
    for pod in ["master-0", "worker-0", "worker-1"] {
        let log = lab.logs(&format!("bagua-{pod}"));
        assert!(log.contains("reached 3 nodes on 3 ports each"), "{pod}: {log}");
        assert!(log.contains("the sum is 14"), "{pod}: {log}");
    }
    lab.wait_until_ended("custom", "Succeeded");
    for client in 0..2 {
        let log = lab.logs(&format!("custom-client-{client}"));
        assert!(result(&log, "final loss ") <= 1e-3, "{client}: {log}");
    }
}

/// Jobs of AresOperator and dl-operator, which their pages walk through.
fn examples_of_other_operators() {
    // Their users do not say as whom pods run.
    let (lab, _operator) = Lab::with_kinds_and_profile("others", "baseline");
    let mut objects = Vec::new();
    for (file, image) in [
        ("aresjob", images::PYTHON),
        ("dl-tfjob", images::PYTHON),
        ("dl-mxjob", images::FRAMEWORKS_SMALL),
    ] {
        let mut documents = manifests(&format!("compat/{file}.yaml"));
        let object = &mut documents[0];
        set_images(&mut object["spec"], image);
        let kind = object["kind"].as_str().unwrap().to_lowercase();
        let (group, _) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap();
        objects.push(format!(
            "{kind}.{group} {}",
            object["metadata"]["name"].as_str().unwrap()
        ));
        for document in documents.iter().rev() {
            lab.apply(&document.to_string()).unwrap();
        }
    }
    for object in &objects {
        lab.until(&format!("{object} succeeds"), || {
            let phase = &lab.get(object)["status"]["phase"];
            if phase == "Succeeded" {
                Ok(())
            } else {
                Err(phase.to_string())
            }
        });
    }
    let says = |pod: &str, what: &str| {
        let log = lab.logs(pod);
        assert!(log.contains(what), "{pod}: {log}");
    };
    says("ranks-master-0", "the ranks [1, 2] add up to 3");
    let host = format!("told ranks-master-0.ranks-master.{}.svc", lab.namespace);
    says("ranks-worker-1", &host);
    says("worker-digits-0", "the sum is 3");
    assert!(result(&lab.logs("worker-linear-0"), "final loss ") <= 1e-3);
}

/// Sets the image of every container in a spec.
fn set_images(spec: &mut Value, image: &str) {
    match spec {
        Value::Array(items) => items.iter_mut().for_each(|item| set_images(item, image)),
        Value::Object(members) => members.iter_mut().for_each(|(name, value)| match value {
            Value::String(text) if name == "image" => image.clone_into(text),
            _ => set_images(value, image),
        }),
        _ => {}
    }
}

/// What Debian's torchrun needs on Python 3.11 to redirect the output of its processes.
pub fn redirect(main: &mut Value) {
    let env = main["env"].as_array_mut().unwrap();
    env.push(json!({"name": "PET_REDIRECTS", "value": "9:1"}));
    env.push(json!({"name": "PET_TEE", "value": "9:1"}));
}

fn deepspeed_on_torchrun() {
    let training = example(
        "deepspeed-torchrun",
        images::HOROVOD,
        "deepspeed-torchrun-worker-0",
    );
    train(&training, as_it_is);
}

fn pytorch_ddp() {
    let training = Training {
        at_most: 1e-2,
        ..example("pytorch-ddp", images::HOROVOD, "pytorch-ddp-worker-0")
    };
    train(&training, as_it_is);
}

/// The same program, started by torchrun.
fn pytorch_on_torchrun() {
    let training = Training {
        at_most: 1e-2,
        ..example("pytorch-ddp", images::HOROVOD, "pytorch-ddp-worker-0")
    };
    train(&training, |template| {
        let main = &mut template["spec"]["containers"][0];
        redirect(main);
        main["command"][0] = "torchrun".into();
    });
}

fn jax() {
    train(
        &example("jax", images::FRAMEWORKS_LARGE, "jax-worker-0"),
        as_it_is,
    );
}

fn paddle() {
    train(
        &example("paddle", images::FRAMEWORKS_LARGE, "paddle-worker-0"),
        as_it_is,
    );
}

fn tensorflow_with_mirrored_workers() {
    train(
        &example("tensorflow", images::FRAMEWORKS_LARGE, "tensorflow-worker-0"),
        as_it_is,
    );
}

fn tensorflow_with_parameter_servers() {
    train(
        &example("tensorflow-ps", images::FRAMEWORKS_LARGE, "tensorflow-ps-chief-0"),
        as_it_is,
    );
}
