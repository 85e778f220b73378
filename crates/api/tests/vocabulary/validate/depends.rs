//! Roles that wait for each other.

use rstest::rstest;
use trainyard_api::DependencyState::{self, Ready, Running, Succeeded};
use trainyard_api::{CreatePolicy, Dependency, RestartPolicy, TrainingJob};

use super::{T, errors, spec};

/// Roles `a`, `b` and `c`, of which some wait for others.
fn waiting(waits: &[(&str, &str, DependencyState)]) -> TrainingJob {
    let mut job = spec(&format!(
        "{{framework: {{name: custom}}, roles: [{{name: a, {T}}}, {{name: b, {T}}}, {{name: c, {T}}}]}}"
    ));
    for (role, awaited, state) in waits {
        let role = job.spec.roles.iter_mut().find(|r| r.name == *role).unwrap();
        role.depends_on.get_or_insert_default().push(Dependency {
            role: (*awaited).to_owned(),
            state: *state,
        });
    }
    job
}

#[rstest]
#[case::one(&[("a", "b", Running)])]
#[case::two_of_one(&[("a", "b", Running), ("a", "c", Succeeded)])]
#[case::a_chain(&[("a", "b", Running), ("b", "c", Ready)])]
#[case::two_ways_to_one(&[("a", "b", Running), ("a", "c", Running), ("b", "c", Running)])]
fn who_may_wait_for_whom(#[case] waits: &[(&str, &str, DependencyState)]) {
    assert_eq!(errors(&waiting(waits)), [""; 0]);
}

const FOR_EVER: &str = "these roles would wait for each other for ever; remove one of the dependencies";

#[rstest]
#[case::itself(
    &[("a", "a", Running)],
    "spec.roles[0].dependsOn[0].role: a role can't wait for itself: name another one, or remove it"
)]
#[case::nobody(
    &[("b", "a", Ready), ("b", "ps", Running)],
    "spec.roles[1].dependsOn[1].role: there is no role \"ps\" in spec.roles: name one that is there"
)]
#[case::one_twice(
    &[("b", "a", Ready), ("b", "a", Running)],
    "spec.roles[1].dependsOn[1].role: the role \"a\" is named before: name each role once, with the later of the two \
     states"
)]
#[case::each_other(
    &[("b", "c", Running), ("c", "b", Succeeded)],
    &format!("spec.roles[1].dependsOn: b waits for c waits for b: {FOR_EVER}")
)]
#[case::in_a_circle(
    &[("a", "b", Running), ("b", "c", Running), ("c", "a", Running)],
    &format!("spec.roles[0].dependsOn: a waits for b waits for c waits for a: {FOR_EVER}")
)]
#[case::on_a_circle(
    &[("a", "b", Running), ("b", "c", Running), ("c", "b", Running)],
    &format!("spec.roles[1].dependsOn: b waits for c waits for b: {FOR_EVER}")
)]
fn who_may_not(#[case] waits: &[(&str, &str, DependencyState)], #[case] said: &str) {
    assert_eq!(errors(&waiting(waits)), [said]);
}

#[test]
fn what_never_succeeds_is_not_waited_for() {
    let mut job = waiting(&[("a", "b", Succeeded), ("c", "b", Ready)]);
    job.spec.roles[1].restart_policy = Some(RestartPolicy::Always);
    let said = "spec.roles[0].dependsOn[0].state: the role \"b\" has restartPolicy Always, given or by default, and never \
                succeeds: wait for Running or Ready, or give another spec.roles[1].restartPolicy";
    assert_eq!(errors(&job), [said]);
}

#[test]
fn who_waits_for_nobody_is_not_created_late() {
    let mut job = waiting(&[("a", "b", Running)]);
    job.spec.roles[0].create_policy = Some(CreatePolicy::WhenDependenciesMet);
    assert_eq!(errors(&job), [""; 0]);
    job.spec.roles[1].create_policy = Some(CreatePolicy::WhenDependenciesMet);
    let said =
        "spec.roles[1].createPolicy: the role depends on nothing: add dependsOn, or leave createPolicy out";
    assert_eq!(errors(&job), [said]);
}
