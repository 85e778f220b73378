//! Reviews of Frameworks, and of jobs that name them.

use super::*;

fn framework(spec: &Value) -> DeclaredFramework {
    let object = json!({"metadata": {"name": "ring"}, "spec": spec});
    serde_json::from_value(object).unwrap()
}

/// A reviewer that knows a Framework.
fn reviewer(spec: &Value) -> Reviewer {
    let index = Arc::new(Index::new(&[]));
    index.declare(&framework(spec));
    Reviewer::default().with_declarations(index)
}

fn good() -> Value {
    json!({
        "roles": [
            {"name": "head", "required": true, "max": 1},
            {"name": "tail", "restartPolicy": "ExitCode", "succeededWhen": "AnyPod",
                "dependsOn": [{"role": "head", "state": "Running"}]},
        ],
        "restartPolicy": "Never",
        "params": {"port": {"type": "integer", "default": 7000, "minimum": 1024}},
        "env": [{"name": "RING_PORT", "value": "params.port"}, {"name": "RING_HEAD", "value": "hosts('head')[0]"}],
        "reserved": ["RING_*"],
    })
}

/// A job with a head and three tails.
fn ring() -> Value {
    let role = |name: &str, replicas: i32| {
        json!({"name": name, "replicas": replicas,
            "template": {"spec": {"containers": [{"name": "train", "image": "i"}]}}})
    };
    job(&json!({"framework": {"name": "ring"}, "roles": [role("head", 1), role("tail", 3)]}))
}

/// The fields that are wrong, each with its sentence.
fn refusal(answer: &Value) -> Vec<String> {
    assert_eq!(answer["allowed"], false, "{answer}");
    let causes = answer["status"]["details"]["causes"].as_array().unwrap();
    let text = |cause: &Value, part: &str| cause[part].as_str().unwrap().to_owned();
    let causes = causes.iter();
    causes
        .map(|cause| format!("{}: {}", text(cause, "field"), text(cause, "message")))
        .collect()
}

/// What is wrong with a job that is created.
fn refusal_of(reviewer: &Reviewer, job: &Value) -> Vec<String> {
    refusal(&ask_of(
        reviewer,
        Hook::Validate,
        &request("CREATE", job, &Value::Null),
    ))
}

#[test]
fn a_job_of_a_good_framework_gets_its_defaults_and_is_allowed() {
    let reviewer = reviewer(&good());
    let (job, paths) = mutated_by(&reviewer, &ring());
    assert!(paths.iter().all(|path| !path.contains("/template")), "{paths:?}");
    let roles = &job["spec"]["roles"];
    assert_eq!(roles[0]["restartPolicy"], "Never");
    assert_eq!(roles[1]["restartPolicy"], "ExitCode");
    assert_eq!(roles[1]["succeededWhen"], "AnyPod");
    assert_eq!(
        roles[1]["dependsOn"],
        json!([{"role": "head", "state": "Running"}])
    );
    assert_eq!(mutated_by(&reviewer, &job).1, [""; 0], "defaults are idempotent");
    let answer = ask_of(&reviewer, Hook::Validate, &request("CREATE", &job, &Value::Null));
    assert_eq!(answer, json!({"uid": "u-1", "allowed": true}));
}

#[rstest]
#[case::unknown_role("/spec/roles/1/name", json!("wheel"), &["spec.roles[1].name: ring has no role \"wheel\": use head or tail"])]
#[case::two_heads("/spec/roles/0/replicas", json!(2), &["spec.roles[0].replicas: ring jobs have at most 1 \"head\" pod: set replicas to 1"])]
#[case::a_param_out_of_range("/spec/framework/params", json!({"port": 80}), &["spec.framework.params.port: 80 is out of range: give at least 1024"])]
#[case::a_param_of_another_type("/spec/framework/params", json!({"port": "7000"}), &["spec.framework.params.port: \"7000\" is no whole number: give one"])]
#[case::no_such_param("/spec/framework/params", json!({"prt": 1}), &["spec.framework.params.prt: the framework has no such param: use port"])]
fn a_job_that_breaks_a_rule_of_its_framework_is_refused_with_the_field(
    #[case] field: &str,
    #[case] value: Value,
    #[case] expected: &[&str],
) {
    let mut job = ring();
    job["spec"]["framework"]["params"] = json!({});
    *job.pointer_mut(field).unwrap() = value;
    assert_eq!(refusal_of(&reviewer(&good()), &job), expected);
}

#[test]
fn a_job_may_not_set_what_its_framework_reserves() {
    let mut job = ring();
    job["spec"]["roles"][1]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "RING_NEXT", "value": "x"}]);
    let found = refusal_of(&reviewer(&good()), &job);
    let field = "spec.roles[1].template.spec.containers[0].env[0].name: ";
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with(field) && found[0].contains("RING_NEXT"),
        "{found:?}"
    );
}

#[test]
fn a_job_of_a_framework_that_does_not_exist_is_refused() {
    let mut job = ring();
    job["spec"]["framework"]["name"] = json!("rung");
    let reviewer = reviewer(&good());
    let found = refusal_of(&reviewer, &job);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("spec.framework.name: there is no framework \"rung\": use one of"),
        "{found:?}"
    );
    // There are no defaults of such a framework, and the other webhook says what is wrong.
    let (filled, _) = mutated_by(&reviewer, &job);
    assert!(contains(&filled, &job), "{filled}");
}

#[test]
fn a_job_of_a_broken_framework_is_refused_and_others_are_not() {
    let reviewer = reviewer(&json!({"env": [{"name": "A", "value": "job.nme"}]}));
    let said = "spec.framework.name: the Framework \"ring\" can't be used until its declaration is corrected: \
                spec.env[0].value: column 1: job has no field \"nme\": it has name, namespace, roles, hosts, replicas, \
                master";
    assert_eq!(refusal_of(&reviewer, &ring()), [said]);
    let (filled, _) = mutated_by(&reviewer, &ring());
    assert!(contains(&filled, &ring()), "{filled}");
    let other = request("CREATE", &job(&spec()), &Value::Null);
    assert_eq!(ask_of(&reviewer, Hook::Validate, &other)["allowed"], true);
}

/// What is asked of the framework that a job was accepted with.
#[rstest]
#[case::a_job_that_runs(true, true)]
#[case::a_job_that_was_not_accepted(false, false)]
fn a_job_that_runs_can_be_changed_when_its_framework_is_broken(#[case] runs: bool, #[case] allowed: bool) {
    let broken = json!({"env": [{"name": "A", "value": "job.nme"}]});
    let reviewer = reviewer(&broken);
    let mut old = ring();
    if runs {
        let accepted = serde_json::to_string(&framework(&good()).spec).unwrap();
        old["status"] = json!({"phase": "Running", "acceptedFramework": accepted});
    }
    let mut new = old.clone();
    new["spec"]["runPolicy"] = json!({"backoffLimit": 7});
    let answer = ask_of(&reviewer, Hook::Validate, &request("UPDATE", &new, &old));
    assert_eq!(answer["allowed"], allowed, "{answer}");
}

/// Asks about a Framework.
fn ask_about(spec: &Value, operation: &str) -> Value {
    let object = json!({"metadata": {"name": "ring"}, "spec": spec});
    let mut request = request(operation, &object, &Value::Null);
    request["request"]["kind"]["kind"] = "Framework".into();
    request["request"]["name"] = "ring".into();
    ask(Hook::Validate, &request)
}

#[test]
fn a_good_framework_is_allowed() {
    for operation in ["CREATE", "UPDATE"] {
        assert_eq!(
            ask_about(&good(), operation),
            json!({"uid": "u-1", "allowed": true})
        );
    }
}

/// The value of a variable, and what is said of `spec.env[0].value`.
#[rstest]
#[case::loops(
    "job.hosts.map(a, job.hosts.map(b, a + b).join('')).join('')",
    "column 18: a loop inside of a loop takes too long: only a loop over roles may have one inside"
)]
#[case::wrong_type(
    "job.hosts",
    "it results in a list, and a string or a number or a boolean is expected: write json(...) around it, or join(...) \
     after a list"
)]
#[case::wrong_type_inside(
    "job.replicas + 'a'",
    "column 1: + can't be used with a number and a string: write string(...) around what is no string"
)]
#[case::no_such_field(
    "replica.node",
    "column 1: replica has no field \"node\": it has role, index, rank, host"
)]
#[case::no_such_param("params.prt", "column 1: params has no field \"prt\": it has none")]
#[case::no_such_function(
    "eval('1')",
    "column 1: there is no function eval: there are hosts, replicas, json, string, int, size, join, startsWith, endsWith, \
     contains, lowerAscii, upperAscii, and map, filter, all, exists, exists_one and transformMapEntry of lists"
)]
#[case::endless(&"(".repeat(2000), "column 101: more than 100 parts are inside of each other: make it simpler")]
#[case::too_long(&"1+".repeat(3000), "an expression has at most 4096 characters: shorten it")]
fn a_bad_framework_is_refused_with_the_field(
    #[case] value: &str,
    #[case] problem: &str,
    #[values("CREATE", "UPDATE")] operation: &str,
) {
    let answer = ask_about(&json!({"env": [{"name": "A", "value": value}]}), operation);
    assert_eq!(answer["status"]["details"]["kind"], "Framework");
    assert_eq!(refusal(&answer), [format!("spec.env[0].value: {problem}")]);
}

#[test]
fn a_framework_that_can_not_be_read_is_refused_with_the_field() {
    let answer = ask_about(
        &json!({"mounts": [{"path": "/a", "hostPath": {"path": "/"}}]}),
        "CREATE",
    );
    let found = refusal(&answer);
    assert!(
        found[0].starts_with("spec.mounts[0]") && found[0].contains("hostPath"),
        "{found:?}"
    );
}

/// What only a job shows: an expression that takes too long for as many pods, or fails for one.
#[rstest]
#[case::too_dear(
    "job.hosts.filter(h, h == replica.host).size()",
    "it takes too long for a job of this size: simplify it, or use fewer pods"
)]
#[case::an_index("job.hosts[replica.rank + 1]", "there is no item 2000: the list has 2000")]
#[case::no_number("100 / (1999 - replica.rank)", "a number is divided by zero")]
fn a_job_that_a_framework_can_not_serve_is_refused(#[case] value: &str, #[case] problem: &str) {
    let reviewer = reviewer(&json!({"env": [{"name": "A", "value": value}]}));
    let mut job = ring();
    job["spec"]["roles"][1]["replicas"] = json!(1999);
    let found = refusal_of(&reviewer, &job);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("spec.framework: the framework's spec.env[0].value fails for tail-")
            && found[0].ends_with(problem),
        "{found:?}"
    );
}
