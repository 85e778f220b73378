//! Objects that nobody should write: malformed, huge, or meant to do harm.

use serde_json::{Value, json};

/// Where objects of a kind are.
#[derive(Clone, Copy, Debug)]
pub enum Collection {
    Jobs,
    MpiJobs,
    ScaleIns,
    ScaleOuts,
}

impl Collection {
    pub fn path(self, namespace: &str) -> String {
        let (version, plural) = match self {
            Self::Jobs => ("trainyard.dev/v1alpha1", "trainingjobs"),
            Self::MpiJobs => ("kubeflow.org/v2beta1", "mpijobs"),
            Self::ScaleIns => ("trainyard.dev/v1alpha1", "scaleins"),
            Self::ScaleOuts => ("trainyard.dev/v1alpha1", "scaleouts"),
        };
        format!("/apis/{version}/namespaces/{namespace}/{plural}")
    }

    /// What a status says is wrong with its object.
    pub fn complaint(self, status: &Value) -> Option<&str> {
        let condition = |kind: &str, holds: &str| {
            let mut conditions = status["conditions"].as_array()?.iter();
            let found =
                conditions.find(|condition| condition["type"] == kind && condition["status"] == holds);
            found?["message"].as_str()
        };
        match self {
            Self::Jobs => condition("Accepted", "False"),
            Self::MpiJobs => condition("Refused", "True"),
            Self::ScaleIns | Self::ScaleOuts if status["phase"] == "ScaleFailed" => {
                status["message"].as_str()
            }
            Self::ScaleIns | Self::ScaleOuts => None,
        }
    }
}

/// What becomes of a bad object.
#[derive(Clone, Debug)]
pub enum Expected {
    /// The server does not store it.
    Refused,
    /// It says in its status what is wrong, with these words among others.
    Told(&'static str),
}

use Expected::{Refused, Told};

#[derive(Clone, Debug)]
pub struct Bad {
    pub collection: Collection,
    pub name: String,
    pub body: String,
    pub expected: Expected,
}

/// All of them; `job` is a job that runs and is not elastic.
pub fn all(job: &str) -> Vec<Bad> {
    let shapes = |kind: Collection, variants: usize, shape: &dyn Fn(usize) -> Vec<Shape>| -> Vec<Bad> {
        let all =
            (0..variants).flat_map(|variant| shape(variant).into_iter().map(move |shape| (variant, shape)));
        all.map(|(variant, shape)| shape.of(kind, variant)).collect()
    };
    [
        shapes(Collection::Jobs, 4, &training_jobs),
        shapes(Collection::MpiJobs, 4, &mpi_jobs),
        shapes(Collection::ScaleIns, 3, &|variant| scale_ins(variant, job)),
        shapes(Collection::ScaleOuts, 3, &|variant| scale_outs(variant, job)),
    ]
    .concat()
}

/// A way in which objects are bad.
struct Shape {
    name: &'static str,
    expected: Expected,
    metadata: Value,
    spec: Value,
    /// How deep the value is in whose place `DEEP` stands.
    depth: usize,
}

/// What a value is replaced by that no type of ours could hold.
const DEEP: &str = "DEEP";

impl Shape {
    fn new(name: &'static str, expected: Expected, spec: Value) -> Self {
        Self {
            name,
            expected,
            metadata: json!({}),
            spec,
            depth: 0,
        }
    }

    fn with(self, metadata: Value) -> Self {
        Self { metadata, ..self }
    }

    fn deep(self, depth: usize) -> Self {
        Self { depth, ..self }
    }

    fn of(self, collection: Collection, variant: usize) -> Bad {
        let (version, kind) = match collection {
            Collection::Jobs => ("trainyard.dev/v1alpha1", "TrainingJob"),
            Collection::MpiJobs => ("kubeflow.org/v2beta1", "MPIJob"),
            Collection::ScaleIns => ("trainyard.dev/v1alpha1", "ScaleIn"),
            Collection::ScaleOuts => ("trainyard.dev/v1alpha1", "ScaleOut"),
        };
        let mut metadata = self.metadata;
        if metadata["name"].is_null() {
            metadata["name"] = format!("{}-{}-{variant}", kind.to_lowercase(), self.name).into();
        }
        let name = metadata["name"].as_str().unwrap().to_owned();
        let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": self.spec});
        let deep = r#"{"a":"#.repeat(self.depth) + "1" + &"}".repeat(self.depth);
        let body = object.to_string().replace(&format!("{DEEP:?}"), &deep);
        Bad {
            collection,
            name,
            body,
            expected: self.expected,
        }
    }
}

/// A template whose pod and whose container have these further fields.
fn template(pod: &Value, container: &Value) -> Value {
    let mut template =
        json!({"spec": {"containers": [{"name": "main", "image": "registry.example/train:1"}]}});
    let spec = &mut template["spec"];
    let more = |object: &mut Value, more: &Value| {
        let more = more.as_object().unwrap().clone();
        object.as_object_mut().unwrap().extend(more);
    };
    more(&mut spec["containers"][0], container);
    more(spec, pod);
    template
}

fn in_pod(pod: &Value) -> Value {
    template(pod, &json!({}))
}

fn in_container(container: &Value) -> Value {
    template(&json!({}), container)
}

fn sources(count: usize) -> Value {
    in_pod(&json!({"volumes": [{"name": "v", "projected": {"sources": vec![json!({}); count]}}]}))
}

/// As many in volumes of which none has too many.
fn shared_out_sources(count: usize) -> Value {
    const MAX: usize = 256;
    let volume = |number: usize| {
        let sources = vec![json!({}); MAX.min(count - number * MAX)];
        json!({"name": format!("v{number}"), "projected": {"sources": sources}})
    };
    let volumes: Vec<Value> = (0..count.div_ceil(MAX)).map(volume).collect();
    in_pod(&json!({"volumes": volumes}))
}

fn labels(count: usize) -> Value {
    let labels = (0..count).map(|number| (format!("l{number}"), json!("")));
    json!({"labels": labels.collect::<serde_json::Map<_, _>>()})
}

/// Longer the higher the variant, up to what etcd takes.
fn long(variant: usize) -> String {
    "x".repeat(650_000 + 250_000 * variant)
}

/// A spec of a job with these roles.
fn job(roles: &Value) -> Value {
    json!({"framework": {"name": "custom"}, "roles": roles})
}

/// A spec of a job with one role.
fn of(template: &Value) -> Value {
    job(&json!([{"name": "worker", "replicas": 1, "template": template}]))
}

fn training_jobs(variant: usize) -> Vec<Shape> {
    let role = |name: &str, waits_for: &str| {
        json!({"name": name, "replicas": 1, "template": in_pod(&json!({})),
            "dependsOn": [{"role": waits_for, "state": "Running"}]})
    };
    let valid = || of(&in_pod(&json!({})));
    let changed = |field: &str, value: Value| {
        let mut spec = valid();
        spec["roles"][0][field] = value;
        spec
    };
    let circle: Vec<Value> = (0..variant + 2)
        .map(|number| {
            role(
                &format!("r{number}"),
                &format!("r{}", (number + 1) % (variant + 2)),
            )
        })
        .collect();
    let containers: Vec<Value> = (0..64)
        .map(|number| json!({"name": format!("c{number}"), "image": "i"}))
        .collect();
    let crowd = in_pod(&json!({"containers": containers}));
    let crowds: Vec<Value> = (0..13 + variant)
        .map(|number| json!({"name": format!("r{number}"), "replicas": 1, "template": crowd}))
        .collect();
    let amount = ["nan", "1e999999999", "1E-999999999", "1e+-3"][variant];
    let control = ["\u{7}", "\u{1b}[2J", "\u{1b}]0;title\u{7}", "\u{202e}"][variant];
    let mut annotated = in_pod(&json!({}));
    annotated["metadata"] = json!({"annotations": {"a": "x".repeat(300_000 + variant)}});
    let mut deep = valid();
    deep["framework"]["params"] = json!({"p": DEEP});
    let mut framework = valid();
    framework["framework"]["name"] = format!("none{control}").into();
    let finalizers: Vec<String> = (0..5100 + variant)
        .map(|number| format!("a.example/f{number}"))
        .collect();
    let port =
        json!({"readinessProbe": {"tcpSocket": {"port": (1_i64 << 32) + i64::try_from(variant).unwrap()}}});
    let long_name = "n".repeat(64 + 50 * variant);
    let env = json!({"env": [{"name": format!("A{control}B"), "value": "x"}]});
    let mount = json!({"volumeMounts": [{"name": format!("v{variant}"), "mountPath": "/x"}]});
    let limits = json!({"resources": {"limits": {"cpu": amount}}});
    let wrong = [json!("two"), json!(-1), json!(i32::MAX), json!({})][variant].clone();
    let empty = vec![""; 3000 + 300 * variant];
    vec![
        Shape::new(
            "sources",
            Told("values"),
            of(&shared_out_sources(2600 + 1000 * variant)),
        ),
        Shape::new("containers", Told("of memory"), job(&crowds.into())),
        Shape::new(
            "long",
            Told("bytes"),
            of(&in_container(&json!({"args": [long(variant)]}))),
        ),
        Shape::new(
            "list",
            Told("values"),
            of(&in_container(&json!({"command": empty, "args": empty}))),
        ),
        Shape::new("deep", Told("deep"), deep).deep([70, 130, 900, 3000][variant]),
        Shape::new("port", Told("tcpSocket.port"), of(&in_container(&port))),
        Shape::new(
            "role",
            Told("there is no role"),
            job(&json!([role("r", &format!("s{variant}"))])),
        ),
        Shape::new("circle", Told("for ever"), job(&circle.into())),
        Shape::new("name", Told("at most 63"), valid()).with(json!({"name": long_name})),
        Shape::new("env", Told("no name of a variable"), of(&in_container(&env))),
        Shape::new(
            "container",
            Told("the container's name"),
            of(&in_container(&json!({"name": control}))),
        ),
        Shape::new("mount", Told("there is no volume"), of(&in_container(&mount))),
        Shape::new("annotations", Told("at most 262144"), of(&annotated)),
        Shape::new("labels", Told("metadata: this has"), valid()).with(labels(5001 + variant)),
        Shape::new("finalizers", Told("metadata: this has"), valid()).with(json!({"finalizers": finalizers})),
        Shape::new("framework", Told("there is no framework"), framework),
        Shape::new("amount", Told("is no amount"), of(&in_container(&limits))),
        Shape::new("replicas", Refused, changed("replicas", wrong)),
        Shape::new(
            "role-name",
            Refused,
            changed("name", format!("r{control}").into()),
        ),
        Shape::new("annotated", Refused, valid()).with(json!({"annotations": {"a": long(variant)}})),
    ]
}

fn mpi_jobs(variant: usize) -> Vec<Shape> {
    let spec =
        |launcher: Value, worker: Value| json!({"mpiReplicaSpecs": {"Launcher": launcher, "Worker": worker}});
    let role = |template: Value| json!({"replicas": 1, "template": template});
    let fine = || role(in_pod(&json!({})));
    let worker = |template: Value| spec(fine(), role(template));
    let more = |field: &str, value: Value| {
        let mut spec = spec(fine(), fine());
        spec[field] = value;
        spec
    };
    let replicas = |replicas: Value| {
        spec(
            fine(),
            json!({"replicas": replicas, "template": in_pod(&json!({}))}),
        )
    };
    let no_object = [json!("spec"), json!(7), json!(true), json!(1.5)][variant].clone();
    let no_number = [json!("two"), json!(1.5), json!(1e30), json!({})][variant].clone();
    let control = ["\u{7}", "\u{1b}[2J", "\u{1b}]0;title\u{7}", "\u{202e}"][variant];
    let depth = [70, 130, 900, 3000][variant];
    vec![
        Shape::new("type", Told("must be of type object"), no_object.clone()),
        Shape::new(
            "lists",
            Told("must be of type object"),
            json!({"mpiReplicaSpecs": vec![json!([]); variant]}),
        ),
        Shape::new(
            "empty",
            Told("is missing"),
            more("mpiReplicaSpecs", json!({"Worker": fine()})),
        ),
        Shape::new(
            "launcher",
            Told("must be of type object"),
            spec(no_object, fine()),
        ),
        Shape::new("replicas", Told("must be of type integer"), replicas(no_number)),
        Shape::new(
            "many",
            Told("at most 20000"),
            replicas(json!(20_001 + 400_000_000 * variant)),
        ),
        Shape::new("deep", Told("deep"), more("unknown", json!(DEEP))).deep(depth),
        Shape::new("deep-template", Told("deep"), worker(json!(DEEP))).deep(depth),
        Shape::new(
            "sources",
            Told("this has"),
            worker(sources(2600 + 20_000 * variant)),
        ),
        Shape::new(
            "long",
            Told("bytes"),
            worker(in_container(&json!({"args": [long(variant)]}))),
        ),
        Shape::new(
            "list",
            Told("this has"),
            more("unknown", json!(vec![0; 6000 + 30_000 * variant])),
        ),
        Shape::new(
            "slots",
            Told("spec.slotsPerWorker"),
            more("slotsPerWorker", json!(-1 - i64::try_from(variant).unwrap())),
        ),
        Shape::new(
            "words",
            Told("is not possible"),
            more("mpiImplementation", json!(format!("OpenMPI{control}"))),
        ),
        Shape::new("labels", Told("metadata: this has"), spec(fine(), fine())).with(labels(5001 + variant)),
        Shape::new(
            "container",
            Told("the container's name"),
            worker(in_container(&json!({"name": control}))),
        ),
    ]
}

fn scale_ins(variant: usize, job: &str) -> Vec<Shape> {
    let of = |job: &str, spec: Value| {
        let mut spec = spec;
        spec["jobRef"] = json!({"name": job});
        spec["timeoutSeconds"] = json!(1 + variant);
        spec
    };
    let one = || json!({"toDelete": {"count": 1}});
    let names = |count: usize| -> Value {
        let names = (0..count).map(|number| format!("p{number}"));
        json!({"toDelete": {"podNames": names.collect::<Vec<_>>()}})
    };
    let script = json!({"toDelete": {"count": 1}, "script": "\u{1b}[2J".repeat(200)});
    let mut elastic = of(job, one());
    elastic["timeoutSeconds"] = json!(3600);
    vec![
        Shape::new("nobody", Told("There is no TrainingJob"), of("nobody", one())),
        Shape::new(
            "names",
            Told("There is no TrainingJob"),
            of("nobody", names(1000 - variant)),
        ),
        Shape::new("labels", Told("There is no TrainingJob"), of("nobody", one()))
            .with(labels(2000 + variant)),
        Shape::new("script", Told("There is no TrainingJob"), of("nobody", script)),
        Shape::new("rigid", Told("it has no spec.elastic"), elastic),
        Shape::new("too-many", Refused, of("nobody", names(1001 + variant))),
        Shape::new("job", Refused, of(&long(variant), one())),
    ]
}

fn scale_outs(variant: usize, job: &str) -> Vec<Shape> {
    let count = |count: i64| json!({"jobRef": {"name": job}, "toAdd": {"count": count}});
    let refused = [-1, 0, 1 << 40][variant];
    let mut arguments = count(1);
    arguments["script"] = "x".into();
    arguments["args"] = json!(vec!["y".repeat(1024); 33 + variant]);
    vec![
        Shape::new("rigid", Told("it has no spec.elastic"), count(1)),
        Shape::new("count", Refused, count(refused)),
        Shape::new("arguments", Refused, arguments),
    ]
}
