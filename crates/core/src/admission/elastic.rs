//! What a framework says about jobs that come to another size while they train.

use trainyard_api::{Elastic, FieldError, JobPhase, Refill, RestartScope, RigidPolicy, StartAt, TrainingJob};

use crate::job::{Elasticity, Framework};

/// What is wrong with an elastic job.
pub(super) fn check(job: &TrainingJob, framework: &Framework) -> Vec<FieldError> {
    let Some(elastic) = &job.spec.elastic else {
        return Vec::new();
    };
    let moot = match framework.elasticity {
        Elasticity::Live => check_live(elastic, framework),
        Elasticity::Rigid => check_rigid(elastic, framework),
    };
    check_role(job, framework)
        .into_iter()
        .chain(moot)
        .chain(check_restart_scopes(job, framework))
        .collect()
}

/// Forbids to let pods start anew together because of one of those that join and leave while the
/// others train. With a pod of another role, such as a launcher, all may start anew.
fn check_restart_scopes(job: &TrainingJob, framework: &Framework) -> Vec<FieldError> {
    if framework.elasticity == Elasticity::Rigid {
        return Vec::new();
    }
    let roles = job.spec.roles.iter().enumerate();
    let elastic = job.spec.elastic_role();
    let given = roles.filter(|(i, role)| {
        let is_together = role.restart_scope.is_some_and(|scope| scope != RestartScope::Pod);
        is_together && elastic == Some(*i)
    });
    given
        .map(|(i, _)| {
            let message = format!(
                "pods of {} jobs join and leave while the others train: remove this, or remove spec.elastic",
                framework.name()
            );
            FieldError::new(format!("spec.roles[{i}].restartScope"), message)
        })
        .collect()
}

/// Forbids to let a role grow of which there is one pod at most.
fn check_role(job: &TrainingJob, framework: &Framework) -> Option<FieldError> {
    let name = &job.spec.roles.get(job.spec.elastic_role()?)?.name;
    let rule = framework.roles.iter().find(|rule| rule.name == *name)?;
    rule.max.map(|max| {
        let message = format!(
            "{} jobs have at most {max} {name:?} pod: give another role",
            framework.name()
        );
        FieldError::new("spec.elastic.role", message)
    })
}

fn check_live(elastic: &Elastic, framework: &Framework) -> Vec<FieldError> {
    let problem = |_| {
        let message = format!(
            "pods of {} jobs join and leave while the others train: remove this",
            framework.name()
        );
        FieldError::new("spec.elastic.rigid", message)
    };
    elastic.rigid.map(problem).into_iter().collect()
}

/// Forbids what says how a job trains with fewer pods than it was told of.
fn check_rigid(elastic: &Elastic, framework: &Framework) -> Vec<FieldError> {
    let moot = [
        (
            "startAt",
            elastic.start_at == Some(StartAt::Min),
            "all pods would start anew as soon as they run",
        ),
        (
            "refill",
            elastic.refill == Some(Refill::Never),
            "the others can't train without a pod that was lost",
        ),
        (
            "pauseTimeoutSeconds",
            elastic.pause_timeout_seconds.is_some(),
            "the job is never paused: pods that are lost are replaced as restartPolicy says",
        ),
    ];
    let moot = moot.into_iter().filter(|(_, is_given, _)| *is_given);
    moot.map(|(field, _, why)| {
        FieldError::new(
            format!("spec.elastic.{field}"),
            format!(
                "{} tells every pod at its start how many there are, and {why}: remove this",
                framework.name()
            ),
        )
    })
    .collect()
}

/// What is wrong with a change of an elastic job that runs.
pub(super) fn check_change(
    old: &TrainingJob,
    new: &TrainingJob,
    framework: Option<&Framework>,
) -> Vec<FieldError> {
    let suspended = old.is_suspended() || new.is_suspended();
    let framework = framework.filter(|_| !suspended);
    let (Some(framework), Some(before), Some(after)) = (framework, &old.spec.elastic, &new.spec.elastic)
    else {
        return Vec::new();
    };
    let phase = old.status.as_ref().and_then(|status| status.phase);
    let runs = phase.is_some_and(|phase| phase != JobPhase::Pending && !phase.is_suspended());
    let size = check_size(before, after, framework).filter(|_| runs);
    check_bounds(before, after, framework)
        .into_iter()
        .chain(size)
        .collect()
}

/// Forbids another target where it is refused.
fn check_size(before: &Elastic, after: &Elastic, framework: &Framework) -> Option<FieldError> {
    let is_refused = framework.elasticity == Elasticity::Rigid && after.rigid == Some(RigidPolicy::Refuse);
    (is_refused && before.replicas != after.replicas).then(|| {
        FieldError::new(
            "spec.elastic.replicas",
            format!(
                "{} tells every pod at its start how many there are, and spec.elastic.rigid is Refuse: set that to Restart, or \
                 set spec.suspend to true first",
                framework.name()
            ),
        )
    })
}

/// Forbids to change the bounds if the framework tells them to every pod at the start.
fn check_bounds(before: &Elastic, after: &Elastic, framework: &Framework) -> Vec<FieldError> {
    let changed = [
        ("minReplicas", before.min() != after.min()),
        ("maxReplicas", before.max() != after.max()),
    ];
    let changed = changed
        .into_iter()
        .filter(|(_, is_changed)| *is_changed && framework.tells_bounds);
    changed
        .map(|(field, _)| {
            FieldError::new(
                format!("spec.elastic.{field}"),
                format!(
                    "{} tells every pod at its start between which sizes it may train, so that this can be changed only while \
                     the job is suspended: set spec.suspend to true first",
                    framework.name()
                ),
            )
        })
        .collect()
}
