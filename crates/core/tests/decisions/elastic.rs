//! What frameworks say of jobs that come to another size while they train.

use rstest::rstest;
use trainyard_api::{
    Elastic, HorovodController, JobPhase, Refill, RestartScope, RigidPolicy, StartAt, TrainingJob,
    TrainingJobStatus, UpdatePolicy,
};
use trainyard_core::job::Job;
use trainyard_core::model::PodKey;
use trainyard_core::{admission, build, frameworks};

use crate::jobs::{Change, job, mpi, with_agent};

fn elastic(job: TrainingJob, change: impl FnOnce(&mut Elastic)) -> TrainingJob {
    job.role("worker", |role| role.replicas = None).spec(|spec| {
        let mut elastic = Elastic {
            replicas: 2,
            min_replicas: Some(2),
            ..Elastic::default()
        };
        change(&mut elastic);
        spec.elastic = Some(elastic);
    })
}

fn of(framework: &str) -> TrainingJob {
    match framework {
        "mpi" => mpi("", 1),
        "mxnet" => job(framework, &[("scheduler", 1), ("server", 1), ("worker", 1)]),
        "dask" => job(framework, &[("scheduler", 1), ("launcher", 1), ("worker", 1)]),
        "horovod" => job(framework, &[("launcher", 1), ("worker", 1)]).spec(|spec| {
            let options = spec.framework.horovod.get_or_insert_default();
            options.controller = Some(HorovodController::Gloo);
        }),
        _ => job(framework, &[("worker", 1)]),
    }
}

fn errors(old: Option<&TrainingJob>, job: &TrainingJob) -> Vec<String> {
    let mut job = job.clone();
    let errors = admission::review(old.cloned(), &mut job);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn jobs_of_every_framework_may_be_elastic() {
    for framework in frameworks::FRAMEWORKS.iter() {
        let job = elastic(of(framework.name()), |_| {});
        assert_eq!(errors(None, &job), [""; 0], "{framework:?}");
    }
}

/// With a launcher all may start anew, and not with one of those that come and go.
#[test]
fn pods_may_start_anew_with_one_of_another_role() {
    let with_scope = |role: &str| {
        let job = elastic(of("horovod"), |_| {}).role(role, |role| {
            role.restart_scope = Some(RestartScope::Job);
        });
        errors(None, &job)
    };
    assert_eq!(with_scope("launcher"), Vec::<String>::new());
    assert_eq!(
        with_scope("worker"),
        [
            "spec.roles[1].restartScope: pods of horovod jobs join and leave while the others train: remove this, or remove \
             spec.elastic"
        ]
    );
}

#[rstest]
#[case::start_at("jax", |elastic: &mut Elastic| elastic.start_at = Some(StartAt::Min),
    "spec.elastic.startAt: jax tells every pod at its start how many there are, and all pods would start anew as soon as they \
     run: remove this")]
#[case::refill("mpi", |elastic: &mut Elastic| elastic.refill = Some(Refill::Never),
    "spec.elastic.refill: mpi tells every pod at its start how many there are, and the others can't train without a pod that was \
     lost: remove this")]
#[case::pause("mxnet", |elastic: &mut Elastic| elastic.pause_timeout_seconds = Some(9),
    "spec.elastic.pauseTimeoutSeconds: mxnet tells every pod at its start how many there are, and the job is never paused: pods \
     that are lost are replaced as restartPolicy says: remove this")]
#[case::not_rigid("pytorch", |elastic: &mut Elastic| elastic.rigid = Some(RigidPolicy::Restart),
    "spec.elastic.rigid: pods of pytorch jobs join and leave while the others train: remove this")]
#[case::one_pod("mxnet", |elastic: &mut Elastic| elastic.role = Some("scheduler".to_owned()),
    "spec.elastic.role: mxnet jobs have at most 1 \"scheduler\" pod: give another role")]
fn what_makes_no_sense_is_refused(
    #[case] framework: &str,
    #[case] change: fn(&mut Elastic),
    #[case] error: &str,
) {
    let job = elastic(of(framework), change).role("worker", |role| {
        role.replicas = (framework == "mxnet" && error.contains("scheduler")).then_some(1);
    });
    let job = if error.contains("scheduler") {
        job.role("scheduler", |role| role.replicas = None)
    } else {
        job
    };
    assert_eq!(errors(None, &job), [error]);
}

#[test]
fn with_an_etcd_bagua_decides_itself_who_trains() {
    let job = elastic(job("bagua", &[("etcd", 1), ("worker", 1)]), |_| {});
    let errors = errors(None, &job);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].starts_with("spec.elastic: with a role \"etcd\""),
        "{errors:?}"
    );
}

#[test]
fn another_target_is_refused_where_the_job_runs_and_says_so() {
    let mut old = elastic(of("jax"), |elastic| elastic.rigid = Some(RigidPolicy::Refuse));
    let mut new = old.clone();
    new.spec.elastic.as_mut().unwrap().replicas = 3;
    assert_eq!(errors(Some(&old), &new), [""; 0], "it does not run yet");
    old.status = Some(TrainingJobStatus {
        phase: Some(JobPhase::Running),
        ..TrainingJobStatus::default()
    });
    assert_eq!(
        errors(Some(&old), &new),
        [
            "spec.elastic.replicas: jax tells every pod at its start how many there are, and spec.elastic.rigid is Refuse: set \
             that to Restart, or set spec.suspend to true first"
        ]
    );
    new.spec.elastic.as_mut().unwrap().rigid = None;
    assert_eq!(errors(Some(&old), &new), [""; 0]);
}

/// The variables of the main container of a pod, and the names of its init containers.
fn pod(job: &TrainingJob, role: &str) -> (Vec<String>, Vec<String>) {
    let job = Job::parse(job).unwrap();
    let (role, _) = job.role(role).unwrap();
    let pod = build::pod(&job, &with_agent(), PodKey { role, index: 0 }).unwrap();
    let spec = pod.spec.unwrap();
    let variables = spec.containers[0].env.iter().flatten();
    let agents = spec.init_containers.iter().flatten();
    (
        variables.map(|variable| variable.name.clone()).collect(),
        agents.map(|container| container.name.clone()).collect(),
    )
}

#[rstest]
#[case::all_of_a_rigid_job("mpi", None, "launcher", true)]
#[case::all_of_a_rigid_job("mxnet", None, "scheduler", true)]
#[case::the_elastic_role("horovod", None, "worker", true)]
#[case::no_other_role("horovod", None, "launcher", false)]
#[case::the_elastic_role("dask", None, "worker", true)]
#[case::no_other_role("dask", None, "scheduler", false)]
#[case::none_where_it_is_refused("mpi", Some(RigidPolicy::Refuse), "worker", false)]
fn pods_that_may_be_told_to_leave_have_an_agent_for_that(
    #[case] framework: &str,
    #[case] rigid: Option<RigidPolicy>,
    #[case] role: &str,
    #[case] has_one: bool,
) {
    let job = elastic(of(framework), |elastic| elastic.rigid = rigid);
    let (variables, agents) = pod(&job, role);
    assert_eq!(variables.contains(&"TRAINYARD_DRAIN".to_owned()), has_one);
    assert_eq!(agents.contains(&"trainyard-drain".to_owned()), has_one);
}

/// Nobody takes the processes away that mpirun has started in them: they know when they leave.
#[rstest]
#[case("mpi", "worker", true)]
#[case("mpi", "launcher", false)]
#[case("horovod", "worker", false)]
fn workers_of_rigid_launchers_do_not_speak_for_their_processes(
    #[case] framework: &str,
    #[case] role: &str,
    #[case] is_silent: bool,
) {
    let (variables, agents) = pod(&elastic(of(framework), |_| {}), role);
    let silently = "TRAINYARD_DRAIN_SILENTLY".to_owned();
    assert_eq!(variables.contains(&silently), is_silent);
    let follows = agents.contains(&"trainyard-hosts".to_owned());
    assert!(!follows || framework == "horovod", "the list is made anew");
}

/// Live where only the number changes; made anew where all pods start anew.
#[test]
fn the_host_file_of_deepspeed_has_the_workers_that_there_are() {
    let launcher = job("deepspeed", &[("launcher", 1), ("worker", 2)]);
    let rolling = launcher
        .clone()
        .run(|run| run.update_policy = Some(UpdatePolicy::Roll));
    let lists = |job: &TrainingJob, container: &str| -> Option<String> {
        let job = Job::parse(job).unwrap();
        let pod = build::pod(&job, &with_agent(), PodKey { role: 0, index: 0 }).unwrap();
        let mut agents = pod.spec.unwrap().init_containers.into_iter().flatten();
        let variables = agents.find(|agent| agent.name == container)?.env?;
        let mut lists = variables.into_iter().filter_map(|variable| variable.value);
        lists.find(|value| value.contains(r#""format":"DeepSpeed""#))
    };
    let followed = lists(&rolling, "trainyard-hosts").unwrap();
    assert!(followed.contains(r#""role":"worker""#), "{followed}");
    let elastic = elastic(launcher, |elastic| elastic.replicas = 3);
    assert_eq!(lists(&elastic, "trainyard-hosts"), None);
    let made = lists(&elastic, "trainyard-install").unwrap();
    assert!(made.contains(r#""count":3"#), "{made}");
}
