//! A plan can be made of anything, however malformed: nothing that a user, another program or an
//! older version wrote makes the operator panic, nor write a status that the API server rejects.

use proptest::prelude::*;
use trainyard_api::TrainingJob;
use trainyard_core::job::Job;
use trainyard_core::local_state::ExecRightState;
use trainyard_core::model::{Action, PodKey, PodNames};
use trainyard_core::plan::{Plan, Step, plan};
use trainyard_core::view::PodRow;
use trainyard_core::{admission, build, depends, exec};

use crate::common::schema;
use crate::draw::{Seen, job, seen};

/// What is made is part of a valid job, can be made, and is made only where nothing stands against
/// it.
fn check_made(job: &TrainingJob, seen: &Seen, action: &Action) -> Result<(), TestCaseError> {
    let parsed =
        Job::parse(job).map_err(|errors| TestCaseError::fail(format!("of an invalid job: {errors:?}")))?;
    prop_assert!(!job.is_suspended(), "a suspended job gets children");
    let taken = seen.conflicts.iter().find(|conflict| match conflict.kind {
        "Pod" => parsed.key(&conflict.name).is_some(),
        "Service" => build::service_keys(&parsed)
            .into_iter()
            .any(|key| conflict.name == build::service_name(&parsed, key)),
        _ => false,
    });
    prop_assert_eq!(taken, None, "its name is taken");
    match action {
        Action::CreatePod(key) => check_pod(&parsed, seen, *key)?,
        Action::CreateService(key) => {
            let service = build::service(&parsed, *key);
            prop_assert!(service.is_some());
            let name = build::service_name(&parsed, *key);
            prop_assert!(
                !seen.services.iter().any(|row| *row.name == *name),
                "{} exists",
                name
            );
        }
        Action::CreateSecret(identity) | Action::FindSecret(identity) => {
            let credentials = parsed.framework.credentials(job);
            let made = credentials.and_then(|credentials| credentials.made());
            prop_assert_eq!(made, Some(*identity), "a Secret that the job does not have");
        }
        Action::CreateExecRight => {
            prop_assert!(seen.settings.allows_exec, "a right that the operator can't give");
            let (account, binding) = (exec::account(&parsed), exec::binding(&parsed));
            prop_assert_eq!(account.metadata, binding.metadata);
        }
        _ => {}
    }
    Ok(())
}

fn check_pod(job: &Job<'_>, seen: &Seen, key: PodKey) -> Result<(), TestCaseError> {
    let name = job.pod_name(key);
    prop_assert!(!seen.pods.iter().any(|row| *row.name == *name), "{} exists", name);
    let role = &job.roles[key.role];
    prop_assert!(role.members.contains(key.index));
    let pod = build::pod(job, &seen.settings, key);
    prop_assert_eq!(pod.and_then(|pod| pod.metadata.name), Some(name));
    if depends::is_created_late(role, &seen.settings)
        && job.object.status.is_none()
        && seen.departed.is_empty()
    {
        for awaited in &role.depends_on {
            let is_one = |name: &str| job.key(name).is_some_and(|key| key.role == awaited.role);
            let come = seen.pods.iter().any(|row| is_one(&row.name));
            prop_assert!(come, "what it waits for can't have come");
        }
    }
    Ok(())
}

/// What is done to pods is done to those that are there, as what they are.
fn check_done(job: &TrainingJob, seen: &Seen, plan: &Plan) -> Result<(), TestCaseError> {
    // Pods of a role that grows are made when the status has them.
    let written = TrainingJob {
        status: job
            .status
            .as_ref()
            .map(|before| plan.status().unwrap_or(before).clone()),
        ..job.clone()
    };
    let row = |name: &str, uid: &str| {
        seen.pods
            .iter()
            .find(|row| *row.name == *name && *row.uid == *uid)
    };
    for action in plan.actions() {
        match action {
            Action::DeletePod { name, uid, force } => {
                let row = row(name, uid).expect("deletes a pod that is not there");
                let gone = row.node.as_deref() == Some("node-2");
                prop_assert_eq!(*force, gone, "force only where the node is gone");
            }
            Action::StartPod { name, uid } => {
                let row = row(name, uid).expect("starts a pod that is not there");
                prop_assert!(row.waits && !row.terminating);
            }
            Action::LabelPod { uid, .. } => {
                let wanted = Job::parse(job).ok().and_then(|job| job.passed_on);
                let differs =
                    |row: &PodRow| !row.labelled || wanted.is_some_and(|wanted| wanted != row.passed_on);
                let mut rows = seen.pods.iter();
                prop_assert!(rows.any(|row| *row.uid == **uid && differs(row)));
            }
            Action::DeleteService { name, uid } => {
                let is_it =
                    |row: &&trainyard_core::view::ServiceRow| *row.name == **name && *row.uid == **uid;
                let row = seen.services.iter().find(is_it);
                prop_assert!(row.is_some_and(|row| !row.terminating));
            }
            Action::Grant(pods) => check_granted(job, seen, pods)?,
            Action::DeleteJob => {}
            Action::CreatePod(_) => check_made(&written, seen, action)?,
            _ => check_made(job, seen, action)?,
        }
    }
    Ok(())
}

/// A right covers pods that exist and are the job's own, while the job goes on.
fn check_granted(job: &TrainingJob, seen: &Seen, pods: &PodNames) -> Result<(), TestCaseError> {
    prop_assert!(seen.settings.allows_exec, "a right that the operator can't give");
    let ours = |name: &str| seen.pods.iter().any(|row| *row.name == *name);
    prop_assert!(pods.iter().all(|name| ours(name)), "{:?}", pods);
    let phase = job.status.as_ref().and_then(|status| status.phase);
    let has_ended = phase.is_some_and(trainyard_api::JobPhase::is_terminal);
    prop_assert!(pods.is_empty() || !job.is_suspended() && !has_ended);
    Ok(())
}

/// A right that is known to cover pods is taken away from a job that does not go on.
fn check_withdrawn(job: &TrainingJob, seen: &Seen, plan: &Plan) -> Result<(), TestCaseError> {
    let ExecRightState::Covers(pods) = &seen.local.exec_right else {
        return Ok(());
    };
    let ends = |action: &Action| matches!(action, Action::Grant(pods) if pods.is_empty());
    let is_being_deleted = job.metadata.deletion_timestamp.is_some();
    let is_unknown = !job.is_ours() || seen.local.is_deleted;
    let goes_on = is_unknown || !job.is_suspended() && !is_being_deleted || pods.is_empty();
    prop_assert!(
        goes_on || !seen.settings.allows_exec || plan.actions().any(ends),
        "keeps its right"
    );
    Ok(())
}

proptest! {
    #![proptest_config(crate::cases(2000))]

    #[test]
    fn a_plan_can_be_made_of_anything(job in job(), seen in seen()) {
        let plan = plan(&seen.of(&job));
        if let Some(status) = plan.status() {
            schema::check_written(job.status.as_ref(), status);
        }
        check_done(&job, &seen, &plan)?;
        check_withdrawn(&job, &seen, &plan)?;
        prop_assert!(plan.events().is_empty() || plan.status().is_some(), "tells what no status keeps");
        let wakes_later = plan.wake_at().is_none_or(|at| at > seen.now);
        prop_assert!(!matches!(plan.step(), Step::Wait | Step::Done) || wakes_later, "a hot loop");
    }
}

proptest! {
    #![proptest_config(crate::cases(500))]

    #[test]
    fn defaults_can_be_written_into_anything_and_twice_is_once(job in job()) {
        let mut once = job.clone();
        admission::default(&mut once);
        let mut twice = once.clone();
        admission::default(&mut twice);
        prop_assert_eq!(&once, &twice);
        // They are no change.
        if admission::validate(None, &once).is_empty() {
            prop_assert_eq!(admission::validate(Some(&once), &once), []);
        }
    }

    #[test]
    fn any_two_jobs_can_be_compared(old in job(), new in job()) {
        let errors = admission::validate(Some(&old), &new);
        prop_assert!(errors.iter().all(|error| !error.path.is_empty() && !error.message.is_empty()));
    }
}
