//! The TrainingJob of ours that a job becomes.

use rstest::rstest;
use serde_json::{Value, json};
use trainyard_api::{CreatePolicy, Dialect, Refill, RestartPolicy, RestartScope};
use trainyard_compat::{ConvertError, convert};
use trainyard_core::build;
use trainyard_core::foreign::{Child, ChildAction};
use trainyard_core::job::Job;

use super::common::{of_job, settings};
use super::{JOB, at, child, kind_of, object, plan, with};

/// Everything that the job owns: names, labels, environment, files of both roles.
#[test]
fn children() {
    let mut child = child(&object());
    child.metadata.uid = Some("child-uid".to_owned());
    let job = Job::parse(&child).unwrap();
    let settings = settings();
    let mut documents = vec![serde_saphyr::to_string(&child.metadata).unwrap()];
    let services = build::service_keys(&job).into_iter();
    documents.extend(services.map(|key| serde_saphyr::to_string(&build::service(&job, key)).unwrap()));
    let pods = job.keys().filter(|key| key.index <= 1);
    documents.extend(pods.map(|key| serde_saphyr::to_string(&build::pod(&job, &settings, key)).unwrap()));
    insta::assert_snapshot!("children", documents.join("---\n"));
}

#[test]
fn converted() {
    let converted = convert(&serde_saphyr::from_str(JOB).unwrap()).unwrap();
    let job = serde_saphyr::to_string(&converted.job).unwrap();
    insta::assert_snapshot!("converted", format!("{}\n---\n{job}", converted.notes.join("\n")));
}

#[test]
fn pods_and_files_are_where_their_users_look_for_them() {
    let child = child(&object());
    assert_eq!(child.spec.dialect, Some(Dialect::Et));
    let job = Job::parse(&child).unwrap();
    let names: Vec<String> = job.keys().map(|key| job.pod_name(key)).collect();
    assert_eq!(names, ["mnist-launcher", "mnist-worker-0", "mnist-worker-1"]);
    let labels: Vec<_> = job.keys().map(|key| build::pod_labels(&job, key)).collect();
    for labels in &labels {
        assert_eq!(labels["group-name"], "kai.alibabacloud.com");
        assert_eq!(labels["training-job-name"], "mnist");
    }
    let role = |at: usize| {
        let labels = &labels[at];
        (
            &*labels["training-job-role"],
            labels.get("replica-index").map(String::as_str),
        )
    };
    assert_eq!([role(0), role(2)], [("launcher", None), ("worker", Some("1"))]);
    let launcher = job.keys().next().unwrap();
    let shell = job.framework.remote_shell(&job, &settings(), launcher).unwrap();
    let files: Vec<&str> = shell.files.iter().map(|file| &*file.path).collect();
    assert_eq!(files, ["/etc/mpi/hostfile", "/etc/edl/hostfile", "/job/hostfile"]);
    assert!(shell.follows, "the lists follow the workers");
    assert_eq!(shell.hosts[0].pattern, "mnist-worker-{}");
    assert_eq!(shell.hosts[0].slots, 1, "one for its accelerator");
    let pod = build::pod(&job, &settings(), launcher).unwrap().spec.unwrap();
    assert!(pod.dns_config.is_some(), "workers are found by their names alone");
}

/// There, `ssh` reached workers in one mode and not in the other. It is the default.
#[rstest]
#[case::left_out(json!(null), &["/usr/local/bin/pdsh", "/usr/local/bin/ssh"])]
#[case::ssh(json!("ssh"), &["/usr/local/bin/pdsh", "/usr/local/bin/ssh"])]
#[case::kubexec(json!("kubexec"), &[])]
fn the_launcher_calls_the_agent_as_it_called_ssh(#[case] mode: Value, #[case] expected: &[&str]) {
    let object = if mode.is_null() {
        object()
    } else {
        with("/spec/launcherAttachMode", mode)
    };
    let child = child(&object);
    let job = Job::parse(&child).unwrap();
    let launcher = job.keys().next().unwrap();
    let shell = job.framework.remote_shell(&job, &settings(), launcher).unwrap();
    assert_eq!(shell.programs, expected);
    let pod = build::pod(&job, &settings(), launcher).unwrap().spec.unwrap();
    let env = pod.containers[0].env.iter().flatten();
    let mut agent = env.filter(|variable| variable.name == "OMPI_MCA_plm_rsh_agent");
    let agent = agent.next().and_then(|variable| variable.value.as_deref());
    assert_eq!(agent, Some("/etc/mpi/kubexec.sh"), "horovodrun calls it in both");
}

#[test]
fn the_launcher_is_created_when_the_workers_are_ready() {
    let child = child(&object());
    assert_eq!(
        child.spec.roles[0].create_policy,
        Some(CreatePolicy::WhenDependenciesMet)
    );
}

#[rstest]
#[case::left_out(json!(null), RestartPolicy::Never)]
#[case::never(json!("Never"), RestartPolicy::Never)]
#[case::on_failure(json!("OnFailure"), RestartPolicy::OnFailure)]
fn the_restart_policy_is_that_of_the_whole_job(#[case] policy: Value, #[case] launcher: RestartPolicy) {
    let object = if policy.is_null() {
        object()
    } else {
        with("/spec/restartPolicy", policy)
    };
    let child = child(&object);
    assert_eq!(child.spec.roles[0].restart_policy, Some(launcher));
    let anew = (launcher == RestartPolicy::OnFailure).then_some(RestartScope::Job);
    assert_eq!(child.spec.roles[0].restart_scope, anew, "all pods, as there");
    assert_eq!(
        child.spec.roles[1].restart_policy,
        Some(RestartPolicy::Always),
        "the launcher alone decides"
    );
    assert_eq!(child.spec.run_policy.unwrap().backoff_limit, Some(6));
}

#[test]
fn a_backoff_limit_and_slots_are_taken_over() {
    let limited = child(&with("/spec/backoffLimit", json!(2)));
    assert_eq!(limited.spec.run_policy.unwrap().backoff_limit, Some(2));
    let slots = child(&with("/spec/slotsPerWorker", json!(8)));
    assert_eq!(slots.spec.framework.horovod.unwrap().slots_per_worker, Some(8));
}

#[rstest]
#[case(json!("Never"), Some(Refill::Never))]
#[case(json!("Always"), None)]
#[case(json!("OnFailure"), None)]
#[case(json!("ExitCode"), None)]
fn workers_that_are_lost_are_replaced_unless_never(#[case] policy: Value, #[case] refill: Option<Refill>) {
    let object = with("/spec/etReplicaSpecs/worker/restartPolicy", policy);
    assert_eq!(child(&object).spec.elastic.unwrap().refill, refill);
}

#[rstest]
#[case::no_roles("/spec/etReplicaSpecs", json!(null), "spec.etReplicaSpecs: is missing: it must be given")]
#[case::no_launcher(
    "/spec/etReplicaSpecs/launcher", json!(null), "spec.etReplicaSpecs.launcher: is missing: it must be given"
)]
#[case::no_template(
    "/spec/etReplicaSpecs/worker/template", json!(null),
    "spec.etReplicaSpecs.worker.template: is missing: it must be given"
)]
#[case::two_launchers(
    "/spec/etReplicaSpecs/launcher/replicas", json!(2),
    "spec.etReplicaSpecs.launcher.replicas: 2 launchers: there is exactly one, so give 1, or leave it out"
)]
#[case::another_mode(
    "/spec/launcherAttachMode", json!("telnet"),
    "spec.launcherAttachMode: \"telnet\" is not possible: give one of ssh, kubexec"
)]
#[case::another_policy(
    "/spec/restartPolicy", json!("Always"),
    "spec.restartPolicy: \"Always\" is not possible: give one of Never, OnFailure"
)]
fn what_can_not_be_run_says_so_with_its_field(
    #[case] pointer: &str,
    #[case] value: Value,
    #[case] expected: &str,
) {
    let object = with(pointer, value);
    let new = plan(&object, Child::None);
    assert_eq!(new.child, ChildAction::Leave);
    let status = new.status.unwrap();
    let refused = &status["conditions"][0];
    assert_eq!(
        (&refused["type"], &refused["reason"]),
        (&json!("Refused"), &json!("Invalid"))
    );
    assert_eq!(refused["message"], expected);
    let reviewed = kind_of(&object).review(None, &object);
    assert_eq!(reviewed[0].to_string(), expected);
    let mut given = object.clone();
    given["metadata"] = json!({"name": "mnist"});
    let Err(ConvertError::Invalid(errors)) = convert(&given) else {
        panic!("it was converted")
    };
    assert_eq!(errors[0].to_string(), expected);
}

/// et-operator never looked at them.
#[rstest]
#[case("replicas", 5)]
#[case("minReplicas", 3)]
#[case("maxReplicas", 1)]
fn min_and_max_are_honoured(#[case] field: &str, #[case] value: i32) {
    let object = with(&format!("/spec/etReplicaSpecs/worker/{field}"), json!(value));
    let errors = kind_of(&object).review(None, &object);
    let at = "spec.etReplicaSpecs.worker.";
    assert!(
        !errors.is_empty() && errors.iter().all(|error| error.path.starts_with(at)),
        "{errors:?}"
    );
}

#[test]
fn without_bounds_there_are_none() {
    let object = with("/spec/etReplicaSpecs/worker/minReplicas", json!(null));
    let object = super::fixture::changed(object, "/spec/etReplicaSpecs/worker/maxReplicas", json!(null));
    let elastic = child(&object).spec.elastic.unwrap();
    assert_eq!((elastic.min(), elastic.max()), (1, 10_000));
}

/// A job that runs, of which somebody has set another target since.
fn resized(replicas: i32) -> trainyard_api::TrainingJob {
    let mut job = at(&object(), json!({"phase": "Running"}));
    job.spec.elastic.as_mut().unwrap().replicas = replicas;
    job
}

#[test]
fn a_target_that_a_request_has_set_is_not_taken_back() {
    let job = resized(4);
    assert_eq!(plan(&object(), of_job(&job)).child, ChildAction::Leave);
    // Another change of the object leaves it alone, too.
    let mut object = with("/spec/backoffLimit", json!(9));
    object["metadata"]["generation"] = 2.into();
    let ChildAction::Replace(replaced) = plan(&object, of_job(&job)).child else {
        panic!("it is not changed")
    };
    assert_eq!(replaced.spec.elastic.as_ref().unwrap().replicas, 4);
    assert_eq!(replaced.spec.run_policy.as_ref().unwrap().backoff_limit, Some(9));
    // And the change after that.
    object["metadata"]["generation"] = 3.into();
    let ChildAction::Replace(again) = plan(&object, of_job(&replaced)).child else {
        panic!("it is not changed")
    };
    assert_eq!(again.spec.elastic.unwrap().replicas, 4);
}

/// What `kubectl scale` of the object writes.
#[test]
fn another_number_of_replicas_of_the_object_is_the_new_target() {
    let mut object = with("/spec/etReplicaSpecs/worker/replicas", json!(3));
    object["metadata"]["generation"] = 2.into();
    let ChildAction::Replace(replaced) = plan(&object, of_job(&resized(4))).child else {
        panic!("it is not changed")
    };
    assert_eq!(replaced.spec.elastic.unwrap().replicas, 3);
}

#[test]
fn its_annotation_suspends_and_resumes_it() {
    let mut object = object();
    object["metadata"]["annotations"] = json!({"job-supervisor.kube-ai.io/job-suspended": "true"});
    assert_eq!(child(&object).spec.suspend, Some(true));
    let running = at(&super::object(), json!({"phase": "Running"}));
    let ChildAction::Replace(suspended) = plan(&object, of_job(&running)).child else {
        panic!("it goes on")
    };
    assert_eq!(suspended.spec.suspend, Some(true));
    assert_eq!(plan(&object, of_job(&suspended)).child, ChildAction::Leave);
    let ChildAction::Replace(resumed) = plan(&super::object(), of_job(&suspended)).child else {
        panic!("it stays suspended")
    };
    assert!(!resumed.is_suspended());
}

#[test]
fn its_definition_has_the_scale_subresource_of_its_users() {
    let definition = kind_of(&object()).definition();
    let scale = &definition["spec"]["versions"][0]["subresources"]["scale"];
    assert_eq!(scale["specReplicasPath"], ".spec.etReplicaSpecs.worker.replicas");
}
