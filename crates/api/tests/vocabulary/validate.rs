//! Every rule of validation: where it points and what it says.

mod depends;
mod pods;

use rstest::rstest;
use trainyard_api::validate::dns_label_problem;
use trainyard_api::{TrainingJob, names, validate};

/// A job that is valid, with YAML merged into it at the places that a case names.
fn job(change: impl FnOnce(&mut TrainingJob)) -> TrainingJob {
    let mut job: TrainingJob = serde_saphyr::from_str(
        "
metadata: {name: mnist, namespace: team}
spec:
  framework: {name: custom}
  roles:
  - name: worker
    replicas: 2
    template: {spec: {containers: [{name: train, image: example/train}]}}
",
    )
    .unwrap();
    change(&mut job);
    job
}

fn errors(job: &TrainingJob) -> Vec<String> {
    validate(None, job).iter().map(ToString::to_string).collect()
}

/// The valid job with another `spec`, as a user writes it.
fn spec(text: &str) -> TrainingJob {
    job(|job| job.spec = serde_saphyr::from_str(text).unwrap())
}

/// A job of one role, as a user writes it.
fn role(text: &str) -> TrainingJob {
    spec(&format!("{{framework: {{name: custom}}, roles: [{{{text}}}]}}"))
}

/// A job of one role with this pod spec.
fn pod(text: &str) -> TrainingJob {
    role(&format!("name: worker, template: {{spec: {{{text}}}}}"))
}

const T: &str = "template: {spec: {containers: [{name: t, image: i}]}}";

#[test]
fn the_valid_job_is_valid() {
    assert_eq!(errors(&job(|_| ())), [""; 0]);
}

#[rstest]
#[case::missing(None, "the name must not be empty, because pods are named after it")]
#[case::upper_case(Some("Mnist"), SPELLING)]
#[case::starts_with_a_digit(Some("1mnist"), SPELLING)]
#[case::ends_with_a_dash(Some("mnist-"), SPELLING)]
#[case::with_a_dot(Some("mnist.v2"), SPELLING)]
#[case::not_ascii(Some("mnïst"), SPELLING)]
fn the_name_of_a_job(#[case] name: Option<&str>, #[case] said: &str) {
    let job = job(|job| job.metadata.name = name.map(str::to_owned));
    assert_eq!(errors(&job), [format!("metadata.name: {said}")]);
}

const SPELLING: &str = "the name must consist of lower-case letters, digits and '-', start with a letter and not end \
                        with '-', because pods are named after it";

#[rstest]
#[case::a("a", None)]
#[case::dashes("a-b-c", None)]
#[case::digits("a1", None)]
#[case::longest(&"a".repeat(63), None)]
#[case::too_long(&"a".repeat(64), Some("has 64 characters; at most 63 are possible"))]
#[case::empty("", Some("must not be empty"))]
fn labels_of_dns(#[case] name: &str, #[case] problem: Option<&str>) {
    assert_eq!(dns_label_problem(name).as_deref(), problem);
}

#[rstest]
// `<job>-worker-<index>`: the highest index counts.
#[case::exactly_63(54, 1, true)]
#[case::exactly_64(55, 1, false)]
#[case::index_9(54, 10, true)]
#[case::index_10_is_one_longer(54, 11, false)]
#[case::index_10_of_a_shorter_job(53, 11, true)]
#[case::index_99(53, 100, true)]
#[case::index_100(53, 101, false)]
fn the_longest_pod_name_has_63_characters(
    #[case] length: usize,
    #[case] replicas: i32,
    #[case] accepted: bool,
) {
    let name = "j".repeat(length);
    let longest = names::pod(&name, "worker", replicas - 1);
    assert_eq!(longest.len() <= 63, accepted, "the case itself");
    let job = job(|job| {
        job.metadata.name = Some(name);
        job.spec.roles[0].replicas = Some(replicas);
    });
    let expected = if accepted {
        vec![]
    } else {
        vec![format!(
            "spec.roles[0].name: the pod name {longest:?} would have 64 characters; at most 63 are possible: shorten \
             the name of the job or of the role by 1"
        )]
    };
    assert_eq!(errors(&job), expected);
}

#[rstest]
#[case::zero(
    "0",
    "0 pods: give at least 1, or remove the role; to stop a job, set spec.suspend"
)]
#[case::negative(
    "-3",
    "-3 pods: give at least 1, or remove the role; to stop a job, set spec.suspend"
)]
fn the_size_of_a_role(#[case] replicas: &str, #[case] said: &str) {
    let job = role(&format!("name: worker, replicas: {replicas}, {T}"));
    assert_eq!(errors(&job), [format!("spec.roles[0].replicas: {said}")]);
}

#[rstest]
// The whole spec but its framework.
#[case::no_roles("roles: []", "spec.roles: a job needs at least one role")]
#[case::too_many_pods(
    &format!("roles: [{{name: a, replicas: 10000, {T}}}, {{name: b, replicas: 10001, {T}}}]"),
    "spec.roles: 20001 pods in one job; at most 20000 are possible"
)]
#[case::the_same_name_twice(
    &format!("roles: [{{name: a, {T}}}, {{name: b, {T}}}, {{name: a, {T}}}]"),
    "spec.roles[2].name: there is a role \"a\" already: give each role its own name"
)]
#[case::a_name_with_an_underscore(
    &format!("roles: [{{name: my_role, {T}}}]"),
    "spec.roles[0].name: the role's name must consist of lower-case letters, digits and '-', start with a letter and \
     not end with '-'"
)]
#[case::a_topology_without_a_name(
    &format!("roles: [{{name: a, placement: {{spread: Required, topologyKey: ''}}, {T}}}]"),
    "spec.roles[0].placement.topologyKey: name a label of nodes, or leave it out"
)]
#[case::a_topology_that_is_no_label(
    &format!("roles: [{{name: a, placement: {{spread: Required, topologyKey: bad key}}, {T}}}]"),
    "spec.roles[0].placement.topologyKey: \"bad key\" is no key of a label: write name or domain/name, the name of at \
     most 63 letters, digits, '-', '_' and '.', which starts and ends with a letter or digit"
)]
#[case::a_rule_for_an_absent_role(
    &format!("roles: [{{name: a, {T}}}], completion: {{succeededWhen: [{{allOf: [a]}}, {{allOf: [a, b]}}]}}"),
    "spec.completion.succeededWhen[1].allOf[1]: there is no role \"b\" in spec.roles: name one that is there"
)]
#[case::a_rule_for_failure_of_an_absent_role(
    &format!("roles: [{{name: a, {T}}}], completion: {{failedWhen: [{{allOf: [b]}}]}}"),
    "spec.completion.failedWhen[0].allOf[0]: there is no role \"b\" in spec.roles: name one that is there"
)]
#[case::a_rule_for_a_role_that_never_succeeds(
    &format!("roles: [{{name: a, {T}}}, {{name: b, restartPolicy: Always, {T}}}], \
              completion: {{succeededWhen: [{{allOf: [a]}}, {{allOf: [a, b]}}]}}"),
    "spec.completion.succeededWhen[1].allOf[1]: the role \"b\" has restartPolicy Always, given or by default, and never \
     succeeds, nor would the job by this rule: leave it out, or give another spec.roles[1].restartPolicy"
)]
#[case::an_empty_set(
    &format!("roles: [{{name: a, {T}}}], completion: {{failedWhen: [{{allOf: []}}]}}"),
    "spec.completion.failedWhen[0].allOf: an empty set holds at once: name at least one role"
)]
#[case::no_rule_at_all(
    &format!("roles: [{{name: a, {T}}}], completion: {{}}"),
    "spec.completion: give succeededWhen or failedWhen, or leave completion out"
)]
#[case::a_negative_ttl(
    &format!("roles: [{{name: a, {T}}}], runPolicy: {{ttlSecondsAfterFinished: -1}}"),
    "spec.runPolicy.ttlSecondsAfterFinished: -1 is too small: give at least 0, or leave it out"
)]
#[case::a_negative_ttl_after_failure(
    &format!("roles: [{{name: a, {T}}}], runPolicy: {{ttlSecondsAfterFailed: -1}}"),
    "spec.runPolicy.ttlSecondsAfterFailed: -1 is too small: give at least 0, or leave it out"
)]
#[case::no_time_at_all(
    &format!("roles: [{{name: a, {T}}}], runPolicy: {{activeDeadlineSeconds: 0}}"),
    "spec.runPolicy.activeDeadlineSeconds: 0 is too small: give at least 1, or leave it out"
)]
#[case::a_negative_budget(
    &format!("roles: [{{name: a, {T}}}], runPolicy: {{backoffLimit: -1}}"),
    "spec.runPolicy.backoffLimit: -1 is too small: give at least 0, or leave it out"
)]
#[case::a_manager_without_a_domain(
    &format!("roles: [{{name: a, {T}}}], managedBy: kueue"),
    "spec.managedBy: \"kueue\" is no controller's name: write it as domain/name, at most 63 characters"
)]
#[case::a_manager_without_a_name(
    &format!("roles: [{{name: a, {T}}}], managedBy: example.com/"),
    "spec.managedBy: \"example.com/\" is no controller's name: write it as domain/name, at most 63 characters"
)]
fn rules_of_the_spec(#[case] text: &str, #[case] said: &str) {
    assert_eq!(
        errors(&spec(&format!("{{framework: {{name: custom}}, {text}}}"))),
        [said]
    );
}

/// A service that runs until it is stopped has no rule; and a role that restarts always can fail
/// for good.
#[rstest]
#[case("")]
#[case(", completion: {failedWhen: [{allOf: [b]}]}")]
#[case(", completion: {succeededWhen: [{allOf: [a]}]}")]
fn a_role_may_restart_always(#[case] rules: &str) {
    let job = spec(&format!(
        "{{framework: {{name: custom}}, roles: [{{name: a, {T}}}, {{name: b, restartPolicy: Always, {T}}}]{rules}}}"
    ));
    assert_eq!(errors(&job), [""; 0]);
}

#[test]
fn the_smallest_values_are_accepted() {
    let run =
        "ttlSecondsAfterFinished: 0, ttlSecondsAfterFailed: 0, activeDeadlineSeconds: 1, backoffLimit: 0";
    let job = spec(&format!(
        "{{framework: {{name: custom}}, roles: [{{name: a, replicas: 10000, {T}}}, {{name: b, replicas: 10000, {T}}}], \
         runPolicy: {{{run}}}, managedBy: a/b}}"
    ));
    assert_eq!(errors(&job), [""; 0]);
}

#[test]
fn at_most_16_roles() {
    let roles = |n: usize| {
        (0..n)
            .map(|i| format!("{{name: r{i}, {T}}}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let job = |n| spec(&format!("{{framework: {{name: custom}}, roles: [{}]}}", roles(n)));
    assert_eq!(errors(&job(16)), [""; 0]);
    assert_eq!(errors(&job(17)), ["spec.roles: at most 16 roles are possible"]);
}

#[rstest]
#[case("team", true)]
#[case("1team", true)]
#[case("BAD NS", false)]
#[case("a.b", false)]
fn the_namespace_of_a_job(#[case] namespace: &str, #[case] accepted: bool) {
    let job = job(|job| job.metadata.namespace = Some(namespace.to_owned()));
    let said = "metadata.namespace: the name must consist of lower-case letters, digits and '-', and start and end with \
                a letter or digit";
    let expected = if accepted { vec![] } else { vec![said] };
    assert_eq!(errors(&job), expected);
}

#[test]
fn a_template_without_a_spec() {
    let said = "spec.roles[0].template.spec.containers: the template has no containers: add at least one";
    assert_eq!(errors(&role("name: worker, template: {}")), [said]);
}

#[test]
fn the_main_container_must_be_there() {
    let said = "spec.roles[0].container: the template has no container named \"main\": name one of its containers, or \
                leave this out";
    assert_eq!(
        errors(&role(&format!("name: worker, container: main, {T}"))),
        [said]
    );
    let init =
        "template: {spec: {containers: [{name: t, image: i}], initContainers: [{name: main, image: i}]}}";
    assert_eq!(
        errors(&role(&format!("name: worker, container: main, {init}"))),
        [said],
        "an init container is none"
    );
    assert_eq!(
        errors(&role(&format!("name: worker, container: t, {T}"))),
        [""; 0]
    );
}

#[rstest]
#[case("trainyard.dev/job", false)]
#[case("trainyard.dev/anything", false)]
#[case("app.kubernetes.io/managed-by", false)]
#[case("app.kubernetes.io/name", true)]
#[case("kueue.x-k8s.io/queue-name", true)]
#[case("trainyard.dev", true)]
fn labels_of_the_operator_are_reserved(#[case] label: &str, #[case] accepted: bool) {
    let template = format!(
        "template: {{metadata: {{labels: {{{label}: x}}}}, spec: {{containers: [{{name: t, image: i}}]}}}}"
    );
    let said = format!(
        "spec.roles[0].template.metadata.labels[{label}]: this label is set by the operator: remove it"
    );
    let expected = if accepted { vec![] } else { vec![said] };
    assert_eq!(errors(&role(&format!("name: worker, {template}"))), expected);
}

#[rstest]
#[case("trainyard.dev/container", false)]
#[case("trainyard.dev/start", true)]
#[case("kubectl.kubernetes.io/default-container", true)]
fn annotations_of_the_operator_are_reserved(#[case] annotation: &str, #[case] accepted: bool) {
    let template = format!(
        "template: {{metadata: {{annotations: {{{annotation}: x}}}}, spec: {{containers: [{{name: t, image: i}}]}}}}"
    );
    let said = format!(
        "spec.roles[0].template.metadata.annotations[{annotation}]: this annotation is set by the operator: remove it"
    );
    let expected = if accepted { vec![] } else { vec![said] };
    assert_eq!(errors(&role(&format!("name: worker, {template}"))), expected);
}

#[rstest]
#[case("labels")]
#[case("annotations")]
fn groups_of_kueue_are_refused(#[case] list: &str) {
    let key = "kueue.x-k8s.io/pod-group-name";
    let template = format!(
        "template: {{metadata: {{{list}: {{{key}: x}}}}, spec: {{containers: [{{name: t, image: i}}]}}}}"
    );
    let said = format!(
        "spec.roles[0].template.metadata.{list}[{key}]: Kueue lets a pod of a group that failed or was deleted go only when it \
         sees another in its place, which the operator makes, under the same name, only when the first is gone, and not at all \
         when the job fails or is suspended, so that the pod would stay for ever: remove it; with the label \
         kueue.x-k8s.io/queue-name alone Kueue admits each pod by itself"
    );
    for policy in ["Never", "OnFailure"] {
        let job = role(&format!("name: worker, restartPolicy: {policy}, {template}"));
        assert_eq!(errors(&job), [&*said]);
    }
}

#[rstest]
#[case::unnamed(
    "{name: ''}",
    "spec.framework.name: name the framework that trains, for example pytorch"
)]
#[case::options_of_another(
    "{name: custom, pytorch: {port: 1}}",
    "spec.framework.pytorch: these are options of pytorch, but the framework is \"custom\": remove them"
)]
#[case::options_of_mpi(
    "{name: pytorch, mpi: {slotsPerWorker: 1}}",
    "spec.framework.mpi: these are options of mpi, but the framework is \"pytorch\": remove them"
)]
fn rules_of_the_framework(#[case] framework: &str, #[case] said: &str) {
    assert_eq!(
        errors(&spec(&format!(
            "{{framework: {framework}, roles: [{{name: a, {T}}}]}}"
        ))),
        [said]
    );
}

#[test]
fn all_that_is_wrong_is_found_at_once() {
    let mut job = spec(
        "
framework: {name: '', pytorch: {}}
managedBy: me
completion: {succeededWhen: [{allOf: [absent]}], failedWhen: [{allOf: []}]}
runPolicy: {ttlSecondsAfterFinished: -1, ttlSecondsAfterFailed: -1, activeDeadlineSeconds: 0, backoffLimit: -1}
roles:
- name: worker
  replicas: 0
  container: absent
  template:
    metadata: {labels: {trainyard.dev/role: x, trainyard.dev/job: y}}
    spec: {containers: [{name: a, image: i}, {name: a}], restartPolicy: Always, hostname: h, subdomain: s}
- {name: worker, template: {}}
- {name: Worker, placement: {spread: Required, topologyKey: ''}, template: {spec: {containers: [{name: a, image: i}]}}}
",
    );
    job.metadata.name = Some("x.y".to_owned());
    let mut paths: Vec<String> = validate(None, &job).into_iter().map(|error| error.path).collect();
    paths.sort();
    let expected = [
        "metadata.name",
        "spec.completion.failedWhen[0].allOf",
        "spec.completion.succeededWhen[0].allOf[0]",
        "spec.framework.name",
        "spec.framework.pytorch",
        "spec.managedBy",
        "spec.roles[0].container",
        "spec.roles[0].replicas",
        "spec.roles[0].template.metadata.labels[trainyard.dev/job]",
        "spec.roles[0].template.metadata.labels[trainyard.dev/role]",
        "spec.roles[0].template.spec.containers[1].image",
        "spec.roles[0].template.spec.containers[1].name",
        "spec.roles[0].template.spec.hostname",
        "spec.roles[0].template.spec.restartPolicy",
        "spec.roles[0].template.spec.subdomain",
        "spec.roles[1].name",
        "spec.roles[1].template.spec.containers",
        "spec.roles[2].name",
        "spec.roles[2].placement.topologyKey",
        "spec.runPolicy.activeDeadlineSeconds",
        "spec.runPolicy.backoffLimit",
        "spec.runPolicy.ttlSecondsAfterFailed",
        "spec.runPolicy.ttlSecondsAfterFinished",
    ];
    assert_eq!(paths, expected);
}

#[test]
fn every_sentence_says_what_to_do() {
    // Each of the sentences above names a remedy after a colon, or is a plain instruction.
    let job = spec("{framework: {name: ''}, roles: [], managedBy: x, completion: {}}");
    for error in validate(None, &job) {
        assert!(
            !error.message.ends_with('.') && error.message.len() > 20,
            "{error}"
        );
    }
}
