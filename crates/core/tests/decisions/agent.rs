//! What a pod has more because it waits for other roles.

use k8s_openapi::api::core::v1::Pod;
use rstest::rstest;
use trainyard_api::TrainingJob;
use trainyard_core::build;
use trainyard_core::job::Job;
use trainyard_core::model::PodKey;
use trainyard_core::view::Settings;

use crate::jobs::{with_agent, with_silent_agent, yaml};

/// A job of a launcher that waits for workers, with more fields in the launcher's role and in its
/// pod.
fn job(role: &str, pod: &str) -> TrainingJob {
    let container = "containers: [{name: main, image: example/train:1, command: [mpirun]}]";
    yaml(&format!(
        "
metadata: {{name: mnist}}
spec:
  framework: {{name: custom}}
  roles:
  - name: launcher
    dependsOn: [{{role: worker, state: Ready}}]
    {role}
    template: {{spec: {{{pod} {container}}}}}
  - name: worker
    replicas: 2
    template: {{spec: {{{container}}}}}
"
    ))
}

fn pod(job: &TrainingJob, role: usize, settings: &Settings) -> Pod {
    let job = Job::parse(job).unwrap();
    build::pod(&job, settings, PodKey { role, index: 0 }).unwrap()
}

fn init_containers(pod: &Pod) -> Vec<String> {
    let init = pod.spec.as_ref().unwrap().init_containers.iter().flatten();
    init.map(|container| container.name.clone()).collect()
}

#[test]
fn the_agent_waits_before_all_others() {
    let job = job(
        "",
        "initContainers: [{name: theirs, image: i, command: [x]}], volumes: [{name: data, emptyDir: {}}],",
    );
    let pod = pod(&job, 0, &with_agent());
    assert_eq!(init_containers(&pod), ["trainyard-wait", "theirs"]);
    insta::assert_yaml_snapshot!(pod);
}

#[rstest]
#[case::who_waits_for_nobody("", "", 1)]
#[case::who_is_created_late("createPolicy: WhenDependenciesMet", "", 0)]
#[case::who_can_not_resolve_our_name("", "hostNetwork: true,", 0)]
#[case::who_has_another_dns("", "dnsPolicy: Default,", 0)]
fn has_no_agent(#[case] role: &str, #[case] spec: &str, #[case] position: usize) {
    let pod = pod(&job(role, spec), position, &with_agent());
    assert_eq!(init_containers(&pod), [""; 0]);
    assert_eq!(pod.spec.unwrap().volumes, None);
}

#[rstest]
#[case::there_is_no_agent(Settings::default())]
#[case::nobody_could_tell_it_anything(with_silent_agent())]
fn none_waits_where(#[case] settings: Settings) {
    assert_eq!(init_containers(&pod(&job("", ""), 0, &settings)), [""; 0]);
}

#[rstest]
#[case::by_default("", Some(true))]
#[case::in_a_pod_of_another_user("securityContext: {runAsUser: 1000},", Some(true))]
#[case::in_a_pod_of_root("securityContext: {runAsUser: 0},", None)]
#[case::with_the_dns_of_the_cluster("hostNetwork: true, dnsPolicy: ClusterFirstWithHostNet,", Some(true))]
fn is_nobody_in_particular(#[case] spec: &str, #[case] run_as_non_root: Option<bool>) {
    let pod = pod(&job("", spec), 0, &with_agent());
    let wait = &pod.spec.as_ref().unwrap().init_containers.as_ref().unwrap()[0];
    let security = wait.security_context.as_ref().unwrap();
    assert_eq!(security.run_as_non_root, run_as_non_root);
    assert_eq!(security.run_as_user, None, "its token is for the user of the pod");
}
