//! Requests with a script: when it is run, how often, and what becomes of a request whose script
//! fails.

use std::collections::{BTreeSet, VecDeque};

use rstest::rstest;
use serde_json::{Value, json};
use trainyard_api::{Elastic, HorovodController, ScaleKind, ScalePhase, TrainingJob};
use trainyard_contract::script::{ScriptEnd, ScriptReport};
use trainyard_core::build;
use trainyard_core::job::Job;
use trainyard_core::local_state::{LocalState, ScriptTask};
use trainyard_core::model::PodKey;
use trainyard_core::scale_request::RequestsPlan;
use trainyard_core::view::PodPhase;

use super::{Desk, elastic, failed, succeeded};
use crate::common::World;
use crate::common::jobs::{Change, job, with_agent};

const EXIT_0: ScriptEnd = ScriptEnd::Exited { code: 0 };
const EXIT_3: ScriptEnd = ScriptEnd::Exited { code: 3 };

/// The agent in the launcher. It makes each attempt once.
#[derive(Default)]
pub(super) struct Launcher {
    /// How its next attempts end; `None`: it never says.
    ends: VecDeque<Option<ScriptEnd>>,
    /// What it was told to run, each once.
    pub made: Vec<ScriptTask>,
    reports: Vec<ScriptReport>,
    /// How often the target of the job had been written when each attempt was made.
    targets: Vec<usize>,
}

impl Launcher {
    fn obey(&mut self, task: &ScriptTask, targets: usize) -> Option<ScriptReport> {
        let run = &task.run;
        if !self.made.contains(task) {
            self.made.push(task.clone());
            self.targets.push(targets);
            if let Some(end) = self.ends.pop_front().unwrap_or(Some(EXIT_0)) {
                self.reports.push(ScriptReport {
                    request: run.request.clone(),
                    attempt: run.attempt,
                    end,
                    output: "\u{1b}so it went".to_owned(),
                });
            }
        }
        let mut reports = self.reports.iter();
        reports
            .find(|report| (&report.request, report.attempt) == (&run.request, run.attempt))
            .cloned()
    }
}

impl Desk {
    /// What the controller does besides its writes. Returns true if the launcher has said something
    /// new.
    pub(super) fn tell_launcher(&mut self, plan: &RequestsPlan) -> bool {
        if !plan.steps.is_empty() && plan.script.is_none() {
            return false;
        }
        let now = self.world.instant();
        self.world.local.offer_script(plan.script.clone(), now);
        let Some(task) = &plan.script else { return false };
        let is_there = |world: &World| {
            let mut pods = world.pods.iter();
            pods.any(|row| row.uid == task.pod_uid && row.phase == PodPhase::Running)
        };
        if !is_there(&self.world) {
            return false;
        }
        let report = self.launcher.obey(task, self.targets.len());
        report.is_some_and(|report| self.world.local.record_script(&task.pod_uid, report))
    }
}

pub(super) fn horovod(replicas: i32) -> TrainingJob {
    let mut job = job("horovod", &[("launcher", 1), ("worker", 1)]).spec(|spec| {
        let options = spec.framework.horovod.get_or_insert_default();
        options.controller = Some(HorovodController::Gloo);
        options.slots_per_worker = Some(2);
        for role in &mut spec.roles {
            let pod = role.template.spec.get_or_insert_default();
            pod.containers[0].command = Some(vec!["train".to_owned()]);
        }
        spec.roles[1].replicas = None;
        spec.elastic = Some(Elastic {
            replicas,
            ..Elastic::default()
        });
    });
    job.metadata.uid = Some("job-uid".to_owned());
    job
}

pub(super) fn desk_of(job: TrainingJob, ends: &[Option<ScriptEnd>]) -> Desk {
    let mut world = World::new(job);
    world.settings = with_agent();
    world.settings.runs_scripts = true;
    world.settle();
    world.tick(3);
    let mut desk = Desk::of(world);
    desk.launcher.ends = ends.iter().copied().collect();
    desk
}

fn desk(ends: &[Option<ScriptEnd>]) -> Desk {
    desk_of(horovod(4), ends)
}

fn spec(change: &Value, more: &Value) -> Value {
    let mut spec = json!({"script": "/scripts/resize", "args": ["--it", "is $(so)"], "env": [{"name": "WHY", "value": "it's $(so)"}]});
    for part in [change, more] {
        for (name, value) in part.as_object().unwrap() {
            spec[name] = value.clone();
        }
    }
    spec
}

fn shrink() -> Value {
    json!({"toDelete": {"podNames": ["mnist-worker-2", "mnist-worker-1"]}})
}

fn grow() -> Value {
    json!({"toAdd": {"count": 2}})
}

fn settle(desk: &mut Desk) {
    for _ in 0..3 {
        desk.settle();
    }
}

fn conditions(desk: &Desk) -> Vec<(&str, &str)> {
    let conditions = desk.status("r").conditions.iter();
    conditions.map(|known| (&*known.type_, &*known.reason)).collect()
}

#[test]
fn a_script_is_run_before_anybody_is_told_to_leave() {
    let mut desk = desk(&[]);
    desk.ask(
        ScaleKind::ScaleIn,
        "r",
        spec(&shrink(), &json!({"timeoutSeconds": 9})),
    );
    settle(&mut desk);
    assert_eq!((desk.end("r"), &*desk.workers()), (succeeded(), "0 3"));
    let [task] = &*desk.launcher.made else {
        panic!("once: {:?}", desk.launcher.made)
    };
    assert_eq!(desk.launcher.targets, [0], "before the target was written");
    assert_eq!(*task.pod_uid, *desk.world.pod("mnist-launcher-0").uid);
    let run = &task.run;
    assert_eq!(
        (&*run.request, run.attempt, run.timeout_seconds),
        ("uid-of-r", 1, 9)
    );
    assert_eq!(
        (&*run.program, &*run.args),
        (
            "/scripts/resize",
            &["--it", "is $(so)", "mnist-worker-1:2,mnist-worker-2:2"].map(str::to_owned)[..]
        )
    );
    assert_eq!(run.env, [("WHY".to_owned(), "it's $(so)".to_owned())]);
    let script = desk.status("r").script.as_ref().unwrap();
    assert_eq!(
        (
            script.attempt,
            &*script.pod,
            script.exit_code,
            script.output.as_deref()
        ),
        (1, "mnist-launcher-0", Some(0), Some("\u{fffd}so it went"))
    );
    assert_eq!(
        conditions(&desk),
        [
            ("Created", "Waiting"),
            ("Scaling", "Scaled"),
            ("ScriptExecuted", "ScriptSucceeded"),
            ("ScaleSucceeded", "Scaled")
        ]
    );
}

#[test]
fn a_script_is_run_when_those_who_join_run() {
    let mut desk = desk(&[]);
    desk.ask(ScaleKind::ScaleOut, "r", spec(&grow(), &json!({})));
    desk.work();
    assert_eq!(desk.launcher.made, [], "they do not run yet");
    settle(&mut desk);
    assert_eq!((desk.end("r"), &*desk.workers()), (succeeded(), "0 1 2 3 4 5"));
    let [task] = &*desk.launcher.made else {
        panic!("once: {:?}", desk.launcher.made)
    };
    assert_eq!(
        task.run.args,
        ["--it", "is $(so)", "mnist-worker-4:2,mnist-worker-5:2"]
    );
    assert_eq!(desk.targets, [6]);
}

#[rstest]
#[case::no_more_attempts(&[Some(EXIT_3)], 0, 1, "Attempt 1 of 1 has ended with exit code 3: \u{fffd}so it went")]
#[case::none_is_good(&[Some(EXIT_3), Some(ScriptEnd::TimedOut)], 1, 2, "Attempt 2 of 2 has taken more than 60 seconds (timeoutSeconds), and was ended: \u{fffd}so it went")]
#[case::not_there(&[Some(ScriptEnd::NotStarted)], 0, 1, "Attempt 1 of 1 could not be started: \u{fffd}so it went")]
fn if_its_script_fails_nobody_leaves_and_nobody_stays_who_has_joined(
    #[case] ends: &[Option<ScriptEnd>],
    #[case] limit: i32,
    #[case] attempts: usize,
    #[case] why: &str,
) {
    let more = json!({"backoffLimit": limit});
    let mut desk = desk(ends);
    desk.ask(ScaleKind::ScaleIn, "r", spec(&shrink(), &more));
    settle(&mut desk);
    assert_eq!(
        (desk.end("r"), &*desk.workers()),
        (failed("ScriptFailed"), "0 1 2 3")
    );
    assert_eq!(desk.message("r"), format!("Nobody leaves. {why}"));
    assert_eq!((desk.targets.len(), desk.launcher.made.len()), (0, attempts));

    let mut desk = self::desk(ends);
    desk.ask(ScaleKind::ScaleOut, "r", spec(&grow(), &more));
    settle(&mut desk);
    assert_eq!(
        (desk.end("r"), &*desk.workers()),
        (failed("ScriptFailed"), "0 1 2 3")
    );
    assert_eq!(
        desk.message("r"),
        format!("The new pods were removed again. {why}")
    );
    assert_eq!(
        (&*desk.targets, desk.launcher.made.len()),
        (&[6, 4][..], attempts)
    );
    // The next one has its turn.
    desk.scale_out("again", 1);
    settle(&mut desk);
    assert_eq!((desk.end("again"), &*desk.workers()), (succeeded(), "0 1 2 3 4"));
}

#[test]
fn a_script_that_fails_is_tried_again() {
    let mut desk = desk(&[Some(EXIT_3), Some(EXIT_3), Some(EXIT_0)]);
    desk.ask(
        ScaleKind::ScaleIn,
        "r",
        spec(&shrink(), &json!({"backoffLimit": 5})),
    );
    settle(&mut desk);
    assert_eq!((desk.end("r"), &*desk.workers()), (succeeded(), "0 3"));
    let attempts: Vec<i32> = desk.launcher.made.iter().map(|task| task.run.attempt).collect();
    assert_eq!(attempts, [1, 2, 3]);
}

/// Programs of a pod are not started again: what its agent knew is gone with it.
#[test]
fn an_attempt_of_a_launcher_that_has_ended_is_not_made_again() {
    let mut desk = desk(&[None]);
    desk.ask(
        ScaleKind::ScaleIn,
        "r",
        spec(&shrink(), &json!({"backoffLimit": 1})),
    );
    desk.work();
    let [first] = &*desk.launcher.made else {
        panic!("{:?}", desk.launcher.made)
    };
    let first = first.clone();
    desk.world.fail("mnist-launcher-0", 1);
    settle(&mut desk);
    assert_eq!((desk.end("r"), &*desk.workers()), (succeeded(), "0 3"));
    let [_, second] = &*desk.launcher.made else {
        panic!("{:?}", desk.launcher.made)
    };
    assert_ne!(second.pod_uid, first.pod_uid);
    assert_eq!((first.run.attempt, second.run.attempt), (1, 2));
}

#[test]
fn a_launcher_that_says_nothing_is_not_waited_for_for_ever() {
    let mut desk = desk(&[None]);
    desk.ask(
        ScaleKind::ScaleIn,
        "r",
        spec(&shrink(), &json!({"timeoutSeconds": 20})),
    );
    desk.work();
    for _ in 0..2 {
        // Another operator begins to lead: it waits anew.
        desk.world.tick(45);
        desk.world.local = LocalState::default();
        assert!(desk.plan().wake_at.is_some(), "it looks again whatever happens");
        desk.work();
        assert_eq!(desk.status("r").phase, Some(ScalePhase::Scaling));
        let due = desk.plan().wake_at.unwrap();
        assert_eq!(due.duration_since(desk.world.now).as_secs(), 50);
    }
    desk.world.tick(50);
    desk.work();
    assert_eq!(
        (desk.end("r"), desk.launcher.made.len()),
        (failed("ScriptFailed"), 1)
    );
    let message = desk.message("r");
    assert!(
        message.contains("has not said one within 50 seconds"),
        "{message}"
    );
}

fn without_agent(desk: &mut Desk) {
    desk.world.settings.agent = None;
}

fn without_scripts(desk: &mut Desk) {
    desk.world.settings.runs_scripts = false;
}

fn without_command(desk: &mut Desk) {
    let pod = desk.world.job.spec.roles[0].template.spec.as_mut().unwrap();
    pod.containers[0].command = None;
}

#[rstest]
#[case::off(without_scripts, "scripts are off in this cluster")]
#[case::no_agent(without_agent, "the operator has no agent to run it")]
#[case::no_command(without_command, "the launcher's container has no command")]
fn a_script_that_nobody_can_run_is_refused_at_once(#[case] happens: fn(&mut Desk), #[case] why: &str) {
    let mut desk = desk(&[]);
    happens(&mut desk);
    for (name, kind, change) in [
        ("in", ScaleKind::ScaleIn, shrink()),
        ("out", ScaleKind::ScaleOut, grow()),
    ] {
        desk.ask(kind, name, spec(&change, &json!({})));
        desk.work();
        assert_eq!(desk.end(name), failed("ScriptRefused"));
        assert!(desk.message(name).contains(why), "{}", desk.message(name));
    }
    assert_eq!((desk.targets.len(), desk.launcher.made.len()), (0, 0));
}

#[test]
fn a_job_without_a_launcher_runs_no_script() {
    let mut desk = Desk::new(elastic(4, |_| {}));
    desk.world.settings = with_agent();
    desk.world.settings.runs_scripts = true;
    desk.ask(
        ScaleKind::ScaleIn,
        "r",
        spec(&json!({"toDelete": {"count": 1}}), &json!({})),
    );
    desk.work();
    assert_eq!(desk.end("r"), failed("ScriptRefused"));
    let message = "The script can't be run: the job has no launcher to run it in.";
    assert_eq!(desk.message("r"), message);
}

#[test]
fn a_script_of_too_many_words_is_refused() {
    let mut desk = desk(&[]);
    let env: Vec<Value> = (0..32)
        .map(|number| json!({"name": format!("N{number}"), "value": "v".repeat(4096)}))
        .collect();
    desk.ask(ScaleKind::ScaleOut, "r", spec(&grow(), &json!({"env": env})));
    desk.work();
    assert_eq!((desk.end("r"), desk.targets.len()), (failed("ScriptRefused"), 0));
}

#[rstest]
#[case(&json!({"script": ""}), "spec.script: is empty: name a program")]
#[case(&json!({"script": "a\u{0}b"}), "spec.script: give a path of at most 1024 characters, without NUL")]
#[case(&json!({"args": ["a\u{0}"]}), "spec.args[0]: give an argument of at most 1024 characters, without NUL")]
#[case(&json!({"env": [{"name": "A=B"}]}), "spec.env[0].name: \"A=B\" is no name of a variable: it has 1 to 256 characters, no =")]
#[case(&json!({"env": [{"name": "A"}, {"name": "A"}]}), "spec.env[1].name: \"A\" is given twice: give it once")]
#[case(&json!({"backoffLimit": -1}), "spec.backoffLimit: -1 more attempts: give a number from 0 to 100")]
fn what_is_wrong_with_a_script_is_said(#[case] more: &Value, #[case] message: &str) {
    let mut desk = desk(&[]);
    desk.ask(ScaleKind::ScaleOut, "r", spec(&grow(), more));
    desk.work();
    assert_eq!((desk.end("r"), desk.message("r")), (failed("Invalid"), message));
}

/// A script of a request that ends otherwise is stopped.
#[test]
fn nothing_is_run_for_a_request_that_has_ended() {
    let mut desk = desk(&[None]);
    desk.ask(ScaleKind::ScaleIn, "r", spec(&shrink(), &json!({})));
    desk.work();
    assert!(desk.world.local.script.offered().is_some());
    desk.world
        .edit(|spec| spec.elastic.as_mut().unwrap().replicas = 5);
    desk.work();
    assert_eq!(desk.end("r"), failed("Superseded"));
    assert_eq!(desk.world.local.script.offered(), None);
}

#[rstest]
#[case::succeeds(&[Some(EXIT_0)], succeeded(), "0 3", "0 1 2 3 4 5")]
#[case::at_last(&[Some(EXIT_3), Some(EXIT_0)], succeeded(), "0 3", "0 1 2 3 4 5")]
#[case::never(&[Some(EXIT_3), Some(EXIT_3)], failed("ScriptFailed"), "0 1 2 3", "0 1 2 3")]
fn an_operator_that_dies_between_any_two_writes_has_each_attempt_made_once(
    #[case] ends: &[Option<ScriptEnd>],
    #[case] end: (ScalePhase, String),
    #[case] after_in: &str,
    #[case] after_out: &str,
) {
    for (kind, change, left) in [
        (ScaleKind::ScaleIn, shrink(), after_in),
        (ScaleKind::ScaleOut, grow(), after_out),
    ] {
        for writes in 0.. {
            let mut desk = desk(ends);
            desk.ask(kind, "r", spec(&change, &json!({"backoffLimit": 1})));
            desk.dies_after = Some(writes);
            settle(&mut desk);
            assert_eq!(
                (&desk.end("r"), &*desk.workers()),
                (&end, left),
                "{kind} {writes}"
            );
            let made = &desk.launcher.made;
            let distinct: BTreeSet<i32> = made.iter().map(|task| task.run.attempt).collect();
            assert_eq!(
                (made.len(), distinct.len()),
                (ends.len(), ends.len()),
                "{kind} {writes}"
            );
            if desk.dies_after.is_some() {
                assert!(writes >= 4);
                break;
            }
        }
    }
}

#[test]
fn the_launcher_s_program_is_started_by_an_agent_where_there_are_scripts() {
    let job = horovod(2);
    let words = |runs_scripts: bool, role: usize| {
        let mut settings = with_agent();
        settings.runs_scripts = runs_scripts;
        let job = Job::parse(&job).unwrap();
        let pod = build::pod(&job, &settings, PodKey { role, index: 0 }).unwrap();
        let main = pod.spec.unwrap().containers.remove(0);
        let names = main.env.unwrap().into_iter().map(|variable| variable.name);
        let is_told = names
            .collect::<Vec<_>>()
            .contains(&"TRAINYARD_SCRIPTS".to_owned());
        let mounts = main.volume_mounts.unwrap_or_default();
        let has_token = mounts
            .iter()
            .any(|mount| mount.mount_path == "/var/run/trainyard");
        (main.command.unwrap(), is_told, has_token)
    };
    let agent = "/etc/mpi/trainyard-agent";
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        words(true, 0),
        (owned(&[agent, "run", "--", "train"]), true, true)
    );
    assert_eq!(words(false, 0), (owned(&["train"]), false, false));
    assert_eq!(
        words(true, 1),
        (owned(&[agent, "run", "--serve", "--", "train"]), false, false),
        "a worker runs no scripts"
    );
}
