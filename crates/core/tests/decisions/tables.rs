//! The tables of the specification, line by line: how a role's state follows from its pods, a job's
//! from its roles, and which ends are forgiven.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rstest::rstest;
use trainyard_api::JobPhase::{
    self, Failed, Paused, Pending, Restarting, Running, Starting, Succeeded, Suspended,
};
use trainyard_api::PodQuorum::{self, AllPods, AnyPod};
use trainyard_api::RestartPolicy::{self, Always, ExitCode, Never, OnFailure};
use trainyard_api::{NodeDownPolicy, RestartCause, RestartRecord, RolePhase};
use trainyard_core::deduce::{self, FirstPod, RoleFacts, RoleWhy, Tally};
use trainyard_core::restart::{self, End};
use trainyard_core::view::{NodeState, PodEnd, PodPhase, PodRow};

/// A role of 3 pods with default rules, restart policy OnFailure, that was in this state.
fn role(was: RolePhase, tally: Tally) -> RoleFacts {
    RoleFacts {
        tally: Tally {
            replicas: 3,
            needed: 3,
            ..tally
        },
        first: FirstPod::GoesOn,
        succeeded_when: AllPods,
        failed_when: AnyPod,
        restart_policy: OnFailure,
        phase: was,
    }
}

/// Pods of a role: how many of each kind, in the order of the table's columns.
fn pods(
    [
        active,
        succeeded,
        failed,
        pending,
        replacing,
        terminating,
        to_create,
    ]: [i32; 7],
) -> Tally {
    Tally {
        active,
        succeeded,
        failed,
        pending,
        replacing,
        terminating,
        to_create,
        ..Tally::default()
    }
}

#[rstest]
//                                       was                  act suc fai pen rep ter cre   is                   why
#[case::nothing_exists(                  RolePhase::Pending,   [0, 0, 0, 0, 0, 0, 3], RolePhase::Pending,   RoleWhy::Plain)]
#[case::pods_were_made(                  RolePhase::Pending,   [0, 0, 0, 3, 0, 0, 0], RolePhase::Starting,  RoleWhy::Plain)]
#[case::some_run_and_some_wait(          RolePhase::Pending,   [2, 0, 0, 1, 0, 0, 0], RolePhase::Starting,  RoleWhy::Plain)]
#[case::some_run_and_some_are_missing(   RolePhase::Pending,   [1, 0, 0, 0, 0, 0, 2], RolePhase::Starting,  RoleWhy::Plain)]
#[case::all_run(                         RolePhase::Starting,  [3, 0, 0, 0, 0, 0, 0], RolePhase::Running,   RoleWhy::Plain)]
#[case::all_run_at_once(                 RolePhase::Pending,   [3, 0, 0, 0, 0, 0, 0], RolePhase::Running,   RoleWhy::Plain)]
#[case::some_run_and_some_are_done(      RolePhase::Starting,  [1, 2, 0, 0, 0, 0, 0], RolePhase::Running,   RoleWhy::Plain)]
#[case::all_are_done(                    RolePhase::Running,   [0, 3, 0, 0, 0, 0, 0], RolePhase::Succeeded, RoleWhy::Plain)]
#[case::all_are_done_at_once(            RolePhase::Pending,   [0, 3, 0, 0, 0, 0, 0], RolePhase::Succeeded, RoleWhy::Plain)]
#[case::one_failed(                      RolePhase::Running,   [2, 0, 1, 0, 0, 0, 0], RolePhase::Failed,    RoleWhy::PodFailed)]
#[case::failure_comes_before_success(    RolePhase::Running,   [0, 3, 1, 0, 0, 0, 0], RolePhase::Failed,    RoleWhy::PodFailed)]
#[case::one_failed_before_it_ran(        RolePhase::Pending,   [0, 0, 1, 2, 0, 0, 0], RolePhase::Failed,    RoleWhy::PodFailed)]
#[case::one_is_replaced(                 RolePhase::Running,   [2, 0, 0, 0, 1, 0, 0], RolePhase::Starting,  RoleWhy::Plain)]
#[case::one_is_being_removed(            RolePhase::Running,   [2, 0, 0, 0, 0, 1, 0], RolePhase::Starting,  RoleWhy::Plain)]
#[case::one_is_missing(                  RolePhase::Running,   [2, 0, 0, 0, 0, 0, 1], RolePhase::Starting,  RoleWhy::Plain)]
#[case::failed_stays(                    RolePhase::Failed,    [0, 3, 0, 0, 0, 0, 0], RolePhase::Failed,    RoleWhy::Plain)]
#[case::succeeded_stays(                 RolePhase::Succeeded, [0, 0, 3, 0, 0, 0, 0], RolePhase::Succeeded, RoleWhy::Plain)]
fn a_role_that_restarts_on_failure(
    #[case] was: RolePhase,
    #[case] tally: [i32; 7],
    #[case] is: RolePhase,
    #[case] why: RoleWhy,
) {
    assert_eq!(deduce::role(&role(was, pods(tally))), (is, why));
}

#[rstest]
//                                       was                  act suc fai pen rep ter cre   is                   why
#[case::missing_before_it_ran(           RolePhase::Starting,  [2, 0, 0, 0, 0, 0, 1], RolePhase::Starting,  RoleWhy::Plain)]
#[case::being_removed_is_not_ended(      RolePhase::Running,   [2, 0, 0, 0, 0, 1, 0], RolePhase::Running,   RoleWhy::Plain)]
#[case::removed_before_it_ran(           RolePhase::Pending,   [0, 0, 0, 0, 0, 1, 2], RolePhase::Starting,  RoleWhy::Plain)]
fn a_role_that_never_restarts(
    #[case] was: RolePhase,
    #[case] tally: [i32; 7],
    #[case] is: RolePhase,
    #[case] why: RoleWhy,
) {
    let facts = RoleFacts {
        restart_policy: Never,
        ..role(was, pods(tally))
    };
    assert_eq!(deduce::role(&facts), (is, why));
}

#[rstest]
//                                       failedWhen  act suc fai ter los   is                   why
#[case::one(                             AnyPod,  [2, 0, 0, 0, 1], RolePhase::Failed,    RoleWhy::PodMissing)]
#[case::one_and_others_are_done(         AnyPod,  [0, 2, 0, 0, 1], RolePhase::Failed,    RoleWhy::PodMissing)]
#[case::one_and_another_failed(          AnyPod,  [1, 0, 1, 0, 1], RolePhase::Failed,    RoleWhy::PodFailed)]
#[case::not_all(                         AllPods, [1, 0, 0, 0, 2], RolePhase::Running,   RoleWhy::Plain)]
#[case::not_all_have_ended(              AllPods, [0, 0, 1, 1, 1], RolePhase::Running,   RoleWhy::Plain)]
#[case::all(                             AllPods, [0, 0, 0, 0, 3], RolePhase::Failed,    RoleWhy::PodMissing)]
#[case::all_and_one_had_failed(          AllPods, [0, 0, 1, 0, 2], RolePhase::Failed,    RoleWhy::PodMissing)]
#[case::all_have_ended_and_no_rule_holds(AllPods, [0, 1, 0, 0, 2], RolePhase::Failed,    RoleWhy::PodMissing)]
fn pods_that_ran_and_are_gone(
    #[case] failed_when: PodQuorum,
    #[case] counts: [i32; 5],
    #[case] is: RolePhase,
    #[case] why: RoleWhy,
) {
    let [active, succeeded, failed, terminating, lost] = counts;
    let tally = pods([active, succeeded, failed, 0, 0, terminating, 0]);
    let facts = RoleFacts {
        failed_when,
        restart_policy: Never,
        ..role(RolePhase::Running, Tally { lost, ..tally })
    };
    assert_eq!(deduce::role(&facts), (is, why));
}

#[rstest]
//                                       first                act suc fai los   is                   why
#[case::others_are_done(                 FirstPod::GoesOn,    [1, 2, 0, 0], RolePhase::Running,   RoleWhy::Plain)]
#[case::others_failed(                   FirstPod::GoesOn,    [1, 0, 2, 0], RolePhase::Running,   RoleWhy::Plain)]
#[case::others_are_lost(                 FirstPod::GoesOn,    [1, 0, 0, 2], RolePhase::Running,   RoleWhy::Plain)]
#[case::it_succeeded_and_others_run(     FirstPod::Succeeded, [2, 1, 0, 0], RolePhase::Succeeded, RoleWhy::Plain)]
#[case::it_succeeded_and_others_failed(  FirstPod::Succeeded, [0, 1, 2, 0], RolePhase::Succeeded, RoleWhy::Plain)]
#[case::it_failed_and_others_run(        FirstPod::Failed,    [2, 0, 1, 0], RolePhase::Failed,    RoleWhy::PodFailed)]
#[case::it_failed_and_others_are_done(   FirstPod::Failed,    [0, 2, 1, 0], RolePhase::Failed,    RoleWhy::PodFailed)]
#[case::it_is_lost_and_others_run(       FirstPod::Lost,      [2, 0, 0, 1], RolePhase::Failed,    RoleWhy::PodMissing)]
fn a_role_that_its_first_pod_decides(
    #[case] first: FirstPod,
    #[case] counts: [i32; 4],
    #[case] is: RolePhase,
    #[case] why: RoleWhy,
) {
    let [active, succeeded, failed, lost] = counts;
    let tally = pods([active, succeeded, failed, 0, 0, 0, 0]);
    let facts = RoleFacts {
        first,
        succeeded_when: PodQuorum::FirstPod,
        failed_when: PodQuorum::FirstPod,
        restart_policy: Never,
        ..role(RolePhase::Running, Tally { lost, ..tally })
    };
    assert_eq!(deduce::role(&facts), (is, why));
}

#[rstest]
//                                            succeededWhen failedWhen  act suc fai   is
#[case::any_success(                          AnyPod,  AnyPod,  [2, 1, 0], RolePhase::Succeeded)]
#[case::any_failure_comes_first(              AnyPod,  AnyPod,  [1, 1, 1], RolePhase::Failed)]
#[case::not_all_succeeded(                    AllPods, AnyPod,  [1, 2, 0], RolePhase::Running)]
#[case::not_all_failed(                       AllPods, AllPods, [1, 0, 2], RolePhase::Running)]
#[case::all_failed(                           AllPods, AllPods, [0, 0, 3], RolePhase::Failed)]
#[case::any_success_outweighs_some_failures(  AnyPod,  AllPods, [1, 1, 1], RolePhase::Succeeded)]
#[case::all_ended_and_no_rule_holds(          AllPods, AllPods, [0, 2, 1], RolePhase::Failed)]
fn the_rules_of_a_role(
    #[case] succeeded_when: PodQuorum,
    #[case] failed_when: PodQuorum,
    #[case] counts: [i32; 3],
    #[case] is: RolePhase,
) {
    let [active, succeeded, failed] = counts;
    let tally = pods([active, succeeded, failed, 0, 0, 0, 0]);
    let facts = RoleFacts {
        succeeded_when,
        failed_when,
        ..role(RolePhase::Running, tally)
    };
    assert_eq!(deduce::role(&facts).0, is);
}

const P: RolePhase = RolePhase::Pending;
const S: RolePhase = RolePhase::Starting;
const R: RolePhase = RolePhase::Running;
const OK: RolePhase = RolePhase::Succeeded;
const BAD: RolePhase = RolePhase::Failed;

#[rstest]
// Two roles; the job succeeds when both did and fails when one did.
#[case::new(                            None,             [P, P],     Starting)]
#[case::one_starts(                     Some(Starting),   [R, S],     Starting)]
#[case::all_run(                        Some(Starting),   [R, R],     Running)]
#[case::one_runs_and_one_is_done(       Some(Running),    [R, OK],    Running)]
#[case::one_is_restarting(              Some(Running),    [R, S],     Restarting)]
#[case::one_is_still_restarting(        Some(Restarting), [R, S],     Restarting)]
#[case::it_runs_again(                  Some(Restarting), [R, R],     Running)]
#[case::all_succeeded(                  Some(Running),    [OK, OK],   Succeeded)]
#[case::all_succeeded_at_once(          None,             [OK, OK],   Succeeded)]
#[case::one_failed(                     Some(Running),    [R, BAD],   Failed)]
#[case::one_failed_while_starting(      Some(Starting),   [S, BAD],   Failed)]
#[case::failure_comes_before_success(   Some(Running),    [OK, BAD],  Failed)]
#[case::succeeded_stays(                Some(Succeeded),  [BAD, BAD], Succeeded)]
#[case::failed_stays(                   Some(Failed),     [OK, OK],   Failed)]
#[case::was_refused(                    Some(Pending),    [P, P],     Starting)]
#[case::was_paused(                     Some(Paused),     [R, S],     Restarting)]
#[case::was_suspended(                  Some(Suspended),  [R, R],     Running)]
fn a_job(#[case] was: Option<JobPhase>, #[case] roles: [RolePhase; 2], #[case] is: JobPhase) {
    assert_eq!(
        deduce::job(was, &roles, false, false, &[vec![0], vec![1]], &[vec![0, 1]]),
        is
    );
}

#[test]
fn a_job_that_has_not_run_and_whose_pods_are_replaced_restarts() {
    let job =
        |roles: [RolePhase; 2]| deduce::job(Some(Starting), &roles, true, false, &[vec![0]], &[vec![0, 1]]);
    assert_eq!(job([S, P]), Restarting);
    assert_eq!(job([R, R]), Running);
    assert_eq!(job([BAD, S]), Failed);
}

#[rstest]
//                                     failedWhen  succeededWhen  roles          is
#[case::any_of(                        "0 or 1",   "0 or 1",      [OK, R, R],    Succeeded)]
#[case::all_of_not_yet(                "0",        "0 1",         [OK, R, R],    Running)]
#[case::all_of(                        "0",        "0 1",         [OK, OK, R],   Succeeded)]
#[case::any_of_all_of(                 "0",        "0 1 or 2",    [R, R, OK],    Succeeded)]
#[case::all_of_failed_not_yet(         "0 1",      "2",           [BAD, R, R],   Running)]
#[case::all_of_failed(                 "0 1",      "2",           [BAD, BAD, R], Failed)]
#[case::a_role_of_no_rule_may_fail(    "0",        "0",           [R, BAD, R],   Running)]
#[case::none_can_hold_any_more(        "0",        "0 1 2",       [OK, BAD, OK], Failed)]
#[case::no_rule_but_some_still_run(    "0",        "0 1 2",       [OK, BAD, R],  Running)]
#[case::an_empty_set_holds_never(      "",         "",            [R, R, R],     Running)]
#[case::an_absent_role_holds_never(    "7",        "0 7",         [OK, R, R],    Running)]
fn the_rules_of_a_job(
    #[case] failed_when: &str,
    #[case] succeeded_when: &str,
    #[case] roles: [RolePhase; 3],
    #[case] is: JobPhase,
) {
    let set = |set: &str| {
        set.split_whitespace()
            .map(|role| role.parse().unwrap())
            .collect::<Vec<usize>>()
    };
    let sets = |sets: &str| sets.split("or").map(set).collect::<Vec<_>>();
    assert_eq!(
        deduce::job(
            Some(Running),
            &roles,
            false,
            false,
            &sets(failed_when),
            &sets(succeeded_when)
        ),
        is
    );
}

fn row(phase: PodPhase, code: Option<i32>, disrupted: bool, terminating: bool) -> PodRow {
    let end = PodEnd {
        exit_code: code,
        disrupted,
        ..PodEnd::default()
    };
    PodRow {
        name: "mnist-worker-0".into(),
        uid: "uid".into(),
        node: Some("node-0".into()),
        phase,
        lingers: false,
        ready: false,
        terminating,
        labelled: true,
        passed_on: 0,
        released: false,
        waits: false,
        template: None,
        spec: None,
        attempt: 0,
        address: None,
        end: (phase == PodPhase::Failed || disrupted).then(|| Box::new(end)),
        trouble: None,
    }
}

#[rstest]
//                                              phase                code       disrupted terminating  is
#[case::waits(PodPhase::Pending, None, false, false, None)]
#[case::runs(PodPhase::Running, None, false, false, None)]
#[case::its_node_is_silent(PodPhase::Unknown, None, false, false, None)]
#[case::is_being_removed(PodPhase::Running, None, false, true, None)]
#[case::is_about_to_be_evicted(PodPhase::Running, None, true, false, None)]
#[case::ended_well(PodPhase::Succeeded, None, false, false, Some(End::Success))]
#[case::ended_well_and_is_removed(PodPhase::Succeeded, None, false, true, Some(End::Success))]
#[case::ended_well_when_it_was_evicted(PodPhase::Succeeded, Some(0), true, true, Some(End::Disruption))]
#[case::failed(PodPhase::Failed, Some(1), false, false, Some(End::Failure(Some(1))))]
#[case::ran_out_of_memory(PodPhase::Failed, Some(137), false, false, Some(End::Failure(Some(137))))]
#[case::was_told_to_end_by_itself(PodPhase::Failed, Some(143), false, false, Some(End::Failure(Some(143))))]
#[case::killed_while_being_removed(PodPhase::Failed, Some(137), false, true, Some(End::Disruption))]
#[case::told_to_end_while_being_removed(PodPhase::Failed, Some(143), false, true, Some(End::Disruption))]
#[case::failed_by_itself_while_being_removed(
    PodPhase::Failed,
    Some(1),
    false,
    true,
    Some(End::Failure(Some(1)))
)]
#[case::evicted(PodPhase::Failed, None, true, false, Some(End::Disruption))]
#[case::evicted_with_an_exit_code(PodPhase::Failed, Some(137), true, false, Some(End::Disruption))]
#[case::its_own_deadline_came(PodPhase::Failed, None, false, false, Some(End::Failure(None)))]
fn the_end_of_a_pod(
    #[case] phase: PodPhase,
    #[case] code: Option<i32>,
    #[case] disrupted: bool,
    #[case] terminating: bool,
    #[case] is: Option<End>,
    #[values(NodeDownPolicy::Fail, NodeDownPolicy::Wait)] policy: NodeDownPolicy,
) {
    let row = row(phase, code, disrupted, terminating);
    assert_eq!(restart::end(&row, NodeState::Up, policy), is);
}

#[rstest]
//                                  phase                code  finished asked  is
#[case::success(PodPhase::Succeeded, 0, Some(4), Some(5), Some(End::Success))]
#[case::checkpoint(PodPhase::Succeeded, 0, Some(6), Some(5), Some(End::Disruption))]
#[case::in_one_second(PodPhase::Succeeded, 0, Some(5), Some(5), Some(End::Disruption))]
#[case::when_is_not_known(PodPhase::Succeeded, 0, None, Some(5), Some(End::Disruption))]
#[case::failure(PodPhase::Failed, 1, Some(4), Some(5), Some(End::Failure(Some(1))))]
#[case::failure_by_signal(PodPhase::Failed, 137, Some(4), Some(5), Some(End::Failure(Some(137))))]
#[case::could_not_say_goodbye(PodPhase::Failed, 1, Some(6), Some(5), Some(End::Disruption))]
#[case::killed(PodPhase::Failed, 137, Some(6), Some(5), Some(End::Disruption))]
#[case::nobody_asked(PodPhase::Failed, 143, Some(6), None, Some(End::Failure(Some(143))))]
fn the_end_of_a_pod_that_is_asked_to_go(
    #[case] phase: PodPhase,
    #[case] code: i32,
    #[case] finished: Option<i64>,
    #[case] asked: Option<i64>,
    #[case] is: Option<End>,
) {
    let second = |second| Timestamp::from_second(second).unwrap();
    let end = PodEnd {
        exit_code: Some(code),
        finished_at: finished.map(second),
        asked_at: asked.map(second),
        ..PodEnd::default()
    };
    let row = PodRow {
        end: Some(Box::new(end)),
        ..row(phase, None, false, asked.is_some())
    };
    assert_eq!(restart::end(&row, NodeState::Up, NodeDownPolicy::Wait), is);
}

#[rstest]
#[case::of_the_runtime(255, "Unknown", End::Disruption)]
#[case::of_the_kubelet(137, "ContainerStatusUnknown", End::Disruption)]
#[case::a_program_of_that_code(255, "Error", End::Failure(Some(255)))]
#[case::out_of_memory(137, "OOMKilled", End::Failure(Some(137)))]
fn a_container_that_a_reboot_has_lost(#[case] code: i32, #[case] reason: &str, #[case] is: End) {
    let mut row = row(PodPhase::Failed, Some(code), false, false);
    row.end.as_mut().unwrap().reason = Some(reason.to_owned());
    assert_eq!(restart::end(&row, NodeState::Up, NodeDownPolicy::Wait), Some(is));
}

#[test]
fn a_pod_whose_end_is_not_described_was_disrupted() {
    let row = PodRow {
        end: None,
        ..row(PodPhase::Failed, None, false, false)
    };
    assert_eq!(
        restart::end(&row, NodeState::Up, NodeDownPolicy::Wait),
        Some(End::Disruption)
    );
}

#[rstest]
//                                 phase                policy               is
#[case::lost(PodPhase::Running, NodeDownPolicy::Fail, Some(End::NodeDown))]
#[case::lost_before_it_ran(PodPhase::Pending, NodeDownPolicy::Fail, Some(End::NodeDown))]
#[case::waited_for(PodPhase::Running, NodeDownPolicy::Wait, None)]
#[case::it_had_succeeded(PodPhase::Succeeded, NodeDownPolicy::Fail, Some(End::Success))]
#[case::it_had_failed(PodPhase::Failed, NodeDownPolicy::Fail, Some(End::Failure(Some(1))))]
fn the_end_of_a_pod_on_a_node_that_is_down(
    #[case] phase: PodPhase,
    #[case] policy: NodeDownPolicy,
    #[case] is: Option<End>,
    #[values(NodeState::Down, NodeState::Gone)] node: NodeState,
) {
    assert_eq!(restart::end(&row(phase, Some(1), false, false), node, policy), is);
}

const FAILURE: Option<RestartCause> = Some(RestartCause::Failure);
const DISRUPTION: Option<RestartCause> = Some(RestartCause::Disruption);
const COMPLETION: Option<RestartCause> = Some(RestartCause::Completion);

#[rstest]
//                   end                Never  OnFailure   Always      ExitCode
#[case::success(     End::Success,      [None, None,       COMPLETION, None])]
#[case::no_code(     End::Failure(None),   [None, FAILURE,    FAILURE,    None])]
#[case::code_1(      End::Failure(Some(1)),   [None, FAILURE,    FAILURE,    None])]
#[case::code_2(      End::Failure(Some(2)),   [None, FAILURE,    FAILURE,    None])]
#[case::code_127(    End::Failure(Some(127)), [None, FAILURE,    FAILURE,    None])]
#[case::code_128(    End::Failure(Some(128)), [None, FAILURE,    FAILURE,    FAILURE])]
#[case::sigkill(     End::Failure(Some(137)), [None, FAILURE,    FAILURE,    FAILURE])]
#[case::sigterm(     End::Failure(Some(143)), [None, FAILURE,    FAILURE,    FAILURE])]
#[case::code_255(    End::Failure(Some(255)), [None, FAILURE,    FAILURE,    FAILURE])]
#[case::disruption(  End::Disruption,   [None, DISRUPTION, DISRUPTION, DISRUPTION])]
#[case::node_down(   End::NodeDown,     [None, DISRUPTION, DISRUPTION, DISRUPTION])]
fn what_is_forgiven(#[case] end: End, #[case] causes: [Option<RestartCause>; 4]) {
    let policies: [RestartPolicy; 4] = [Never, OnFailure, Always, ExitCode];
    assert_eq!(policies.map(|policy| restart::replacement(policy, end)), causes);
}

#[rstest]
#[case::the_first_comes_at_once(0, None)]
#[case::the_second_waits(1, Some(10))]
#[case::then_twice_as_long(2, Some(20))]
#[case::and_again(3, Some(40))]
#[case::up_to_five_minutes(6, Some(300))]
#[case::and_no_longer(200, Some(300))]
fn how_long_a_replacement_waits(#[case] earlier: u32, #[case] seconds: Option<i64>) {
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let expected = seconds.map(|seconds| now + SignedDuration::from_secs(seconds));
    assert_eq!(restart::not_before(earlier, now), expected);
}

#[test]
fn a_wait_beyond_the_end_of_time_is_none() {
    assert_eq!(restart::not_before(1, Timestamp::MAX), None);
}

#[rstest]
#[case::none(&[], None, 0)]
#[case::all_of_ten_minutes(&[1200, 600, 600], None, 3)]
#[case::calm(&[601], None, 0)]
#[case::calm_between(&[1300, 650, 20, 10], None, 2)]
#[case::only_since_the_start(&[40, 30, 20], Some(30), 2)]
#[case::a_clock_that_went_back(&[-5], None, 1)]
fn which_replacements_count(#[case] ages: &[i64], #[case] start: Option<i64>, #[case] count: usize) {
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let ago = |seconds: i64| now - SignedDuration::from_secs(seconds);
    let record = |age: &i64| RestartRecord {
        time: Time(ago(*age)),
        pod: "mnist-worker-1".to_owned(),
        cause: RestartCause::Failure,
        exit_code: None,
        reason: "Error".to_owned(),
        consequences: 0,
        node: None,
        step: None,
        checkpoint: None,
        seconds: None,
        step_after: None,
        steps_lost: None,
    };
    let history: Vec<RestartRecord> = ages.iter().map(record).collect();
    let expected = history.split_at(history.len() - count).1;
    assert_eq!(restart::recent(&history, start.map(ago), now), expected);
}
