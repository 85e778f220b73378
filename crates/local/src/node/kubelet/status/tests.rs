use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn ended(code: i32) -> Terminated {
    Terminated {
        code,
        reason: if code == 0 { "Completed" } else { "Error" }.to_owned(),
        message: None,
        started: Timestamp::UNIX_EPOCH,
        finished: Timestamp::UNIX_EPOCH,
        id: Some("run".to_owned()),
    }
}

#[test]
fn what_has_ended_as_soon_as_it_started_has_come_up_all_the_same() {
    let (_, mut state) = state("", "w", &["w"]);
    let sidecar = state.entry("side").unwrap();
    assert!(!sidecar.came_up);
    sidecar.comes_up();
    sidecar.ends(ended(1));
    assert_eq!((sidecar.came_up, sidecar.started), (true, false));
}

/// A state in one word: `w`aiting, `r`unning, waiting to be started `a`gain, or an exit code.
fn put(entry: &mut Entry, word: &str) {
    match word {
        "w" => {}
        "r" => {
            entry.state = State::Running {
                since: Timestamp::UNIX_EPOCH,
            };
            entry.started = true;
            entry.ready = true;
        }
        "a" => {
            entry.state = State::waiting("CrashLoopBackOff");
            entry.last = Some(ended(1));
        }
        code => entry.state = State::Terminated(ended(code.parse().unwrap())),
    }
}

/// A pod with an init container, a sidecar and containers in states.
fn state(init: &str, sidecar: &str, main: &[&str]) -> (Pod, PodState) {
    let mut first = Vec::new();
    if !init.is_empty() {
        first.push(json!({"name": "init"}));
    }
    if !sidecar.is_empty() {
        first.push(json!({"name": "side", "restartPolicy": "Always"}));
    }
    let names: Vec<Value> = (0..main.len())
        .map(|at| json!({"name": format!("m{at}")}))
        .collect();
    let pod: Pod = serde_json::from_value(
        json!({"metadata": {"name": "p"}, "spec": {"initContainers": first, "containers": names}}),
    )
    .unwrap();
    let mut state = PodState::new(&pod, Timestamp::UNIX_EPOCH);
    for (name, word) in [("init", init), ("side", sidecar)] {
        if let Some(entry) = state.entry(name) {
            put(entry, word);
        }
    }
    for (at, word) in main.iter().enumerate() {
        put(state.entry(&format!("m{at}")).unwrap(), word);
    }
    (pod, state)
}

fn status(mut pod: Pod, state: &PodState, policy: &str) -> PodStatus {
    pod.spec.as_mut().unwrap().restart_policy = Some(policy.to_owned());
    state.status(&pod, Ipv4Addr::LOCALHOST, Timestamp::UNIX_EPOCH)
}

#[rstest]
#[case("", "", &["w"], "Never", "Pending")]
#[case("", "", &["r", "w"], "Never", "Pending")]
#[case("", "", &["r", "0"], "Never", "Running")]
#[case("", "", &["0", "0"], "Never", "Succeeded")]
#[case("", "", &["0", "3"], "Never", "Failed")]
#[case("", "", &["0", "3"], "OnFailure", "Running")]
#[case("", "", &["0"], "OnFailure", "Succeeded")]
#[case("", "", &["0"], "Always", "Running")]
#[case("", "", &["a"], "Always", "Running")]
#[case("w", "", &["w"], "Never", "Pending")]
#[case("r", "", &["w"], "Never", "Pending")]
#[case("2", "", &["w"], "Never", "Failed")]
#[case("2", "", &["w"], "OnFailure", "Pending")]
#[case("a", "", &["w"], "OnFailure", "Pending")]
#[case("0", "r", &["r"], "Never", "Running")]
#[case("0", "r", &["0"], "Never", "Running")]
#[case("0", "137", &["0"], "Never", "Succeeded")]
#[case("0", "a", &["r"], "Never", "Running")]
#[case("2", "r", &["w"], "Never", "Pending")]
fn phase(
    #[case] init: &str,
    #[case] sidecar: &str,
    #[case] main: &[&str],
    #[case] policy: &str,
    #[case] wanted: &str,
) {
    let (pod, state) = state(init, sidecar, main);
    assert_eq!(status(pod, &state, policy).phase.as_deref(), Some(wanted));
}

#[test]
fn a_pod_that_is_too_late_has_failed_when_its_containers_have_ended() {
    let (pod, mut state) = state("", "", &["r"]);
    state.failure = Some(("DeadlineExceeded".to_owned(), "late".to_owned()));
    let before = status(pod.clone(), &state, "Never");
    assert_eq!((before.phase.as_deref(), before.reason), (Some("Running"), None));
    put(state.entry("m0").unwrap(), "137");
    state.close();
    let after = status(pod, &state, "Never");
    assert_eq!(
        (after.phase.as_deref(), after.reason.as_deref()),
        (Some("Failed"), Some("DeadlineExceeded"))
    );
}

#[rstest]
#[case("", &["0"], "Succeeded")]
#[case("", &["137"], "Failed")]
#[case("", &["w"], "Failed")]
#[case("r", &["w"], "Failed")]
fn a_pod_that_is_ended_has_a_last_phase(#[case] init: &str, #[case] main: &[&str], #[case] wanted: &str) {
    let (pod, mut state) = state(init, "", main);
    state.close();
    assert_eq!(status(pod, &state, "Always").phase.as_deref(), Some(wanted));
}

#[test]
fn what_never_ran_is_not_left_waiting_in_the_end() {
    let reasons = |state: &PodState, pod: &Pod| -> Vec<Option<String>> {
        let status = status(pod.clone(), state, "Always");
        let all = [status.init_container_statuses, status.container_statuses];
        let all = all.into_iter().flatten().flatten();
        all.map(|one| one.state.and_then(|state| state.terminated?.reason))
            .collect()
    };
    let unknown = Some("ContainerStatusUnknown".to_owned());
    let (pod, mut absent) = state("", "", &["w"]);
    absent.close();
    assert_eq!(reasons(&absent, &pod), std::slice::from_ref(&unknown));
    let (pod, mut again) = state("", "", &["a"]);
    again.close();
    assert_eq!(reasons(&again, &pod), [Some("Error".to_owned())]);
    let (pod, mut early) = state("w", "", &["w"]);
    early.close();
    assert_eq!(
        reasons(&early, &pod),
        [unknown, None],
        "what is behind an init container never had a chance"
    );
}

#[test]
fn a_sidecar_that_is_started_again_does_not_undo_the_initialization() {
    let (pod, state) = state("0", "a", &["r"]);
    let conditions = status(pod, &state, "Never").conditions.unwrap();
    let of = |kind: &str| {
        conditions
            .iter()
            .find(|found| found.type_ == kind)
            .unwrap()
            .status
            .clone()
    };
    assert_eq!(
        (of("Initialized"), of("Ready")),
        ("True".to_owned(), "False".to_owned())
    );
}
