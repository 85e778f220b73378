//! What pods and Services look like, framework by framework.
//!
//! Snapshots are under `snapshots/`; `cargo insta review` shows what changed.

use k8s_openapi::api::core::v1::{Container, Pod};
use rstest::rstest;
use trainyard_api::TrainingJob;
use trainyard_core::build;
use trainyard_core::job::Job;
use trainyard_core::model::{PodKey, ServiceKey};
use trainyard_core::view::Settings;

use crate::jobs::yaml;

/// All that a job makes, as YAML documents: its Services, then its pods.
fn children(job: &TrainingJob) -> String {
    let job = Job::parse(job).unwrap();
    let services = build::service_keys(&job).into_iter().map(|key| {
        let service = build::service(&job, key).unwrap();
        format!("# Service\n{}", serde_saphyr::to_string(&service).unwrap())
    });
    let pods = job.keys().map(|key| {
        let pod = build::pod(&job, &Settings::default(), key).unwrap();
        format!("# Pod\n{}", serde_saphyr::to_string(&pod).unwrap())
    });
    services.chain(pods).collect::<Vec<_>>().join("---\n")
}

fn pod(job: &TrainingJob, role: usize, index: i32) -> Pod {
    let job = Job::parse(job).unwrap();
    build::pod(&job, &Settings::default(), PodKey { role, index }).unwrap()
}

fn env(container: &Container) -> Vec<(String, String)> {
    let vars = container.env.iter().flatten();
    vars.map(|var| (var.name.clone(), var.value.clone().unwrap_or_default()))
        .collect()
}

fn value(container: &Container, name: &str) -> String {
    let found: Vec<String> = env(container)
        .into_iter()
        .filter(|(n, _)| n == name)
        .map(|(_, v)| v)
        .collect();
    assert_eq!(found.len(), 1, "{name} is there once");
    found[0].clone()
}

/// The main container of a pod.
fn main_of(pod: &Pod) -> Container {
    pod.spec.as_ref().unwrap().containers[0].clone()
}

fn pytorch(options: &str, roles: &str) -> TrainingJob {
    yaml(&format!(
        "metadata: {{name: ddp}}\nspec:\n  framework: {{name: pytorch, pytorch: {{{options}}}}}\n  roles:\n{roles}"
    ))
}

const MASTER: &str =
    "  - {name: master, template: {spec: {containers: [{name: train, image: example/ddp}]}}}\n";
const WORKERS: &str =
    "  - {name: worker, replicas: 2, template: {spec: {containers: [{name: train, image: example/ddp}]}}}\n";

#[test]
fn pytorch_master_and_workers() {
    insta::assert_snapshot!(children(&pytorch("", &format!("{MASTER}{WORKERS}"))));
}

#[test]
fn pytorch_workers_only() {
    insta::assert_snapshot!(children(&pytorch("", WORKERS)));
}

#[test]
fn pytorch_stable_master_address() {
    let options = "masterService: ClusterIP, port: 12345";
    insta::assert_snapshot!(children(&pytorch(options, &format!("{MASTER}{WORKERS}"))));
}

#[test]
fn pytorch_stable_master_address_of_workers_only() {
    let job = pytorch("masterService: ClusterIP", WORKERS);
    let job = Job::parse(&job).unwrap();
    let service = build::service(&job, ServiceKey::Master).unwrap().spec.unwrap();
    let selector = service.selector.unwrap();
    assert_eq!(
        (
            &*selector["trainyard.dev/role"],
            &*selector["trainyard.dev/index"]
        ),
        ("worker", "0")
    );
}

#[test]
fn a_job_without_a_stable_address_has_no_such_service() {
    let job = pytorch("", MASTER);
    let job = Job::parse(&job).unwrap();
    assert_eq!(build::service_keys(&job), [ServiceKey::Headless]);
    assert!(build::service(&job, ServiceKey::Master).is_none());
}

#[test]
fn custom_of_two_roles_with_all_that_a_template_can_carry() {
    let job = yaml(
        "
metadata: {name: mix}
spec:
  framework: {name: custom}
  roles:
  - name: ps
    template:
      metadata:
        labels: {team: vision}
        annotations: {note: kept}
      spec:
        initContainers:
        - {name: fetch, image: example/fetch}
        containers:
        - name: serve
          image: example/ps
          terminationMessagePolicy: File
          env: [{name: PEERS, value: $(worker)}]
        - {name: sidecar, image: example/logs}
        enableServiceLinks: true
        nodeSelector: {disk: ssd}
        tolerations: [{key: gpu, operator: Exists}]
        schedulingGates: [{name: example.com/wait}]
  - name: worker
    replicas: 2
    container: train
    template:
      spec:
        containers:
        - {name: proxy, image: example/proxy}
        - {name: train, image: example/worker}
",
    );
    insta::assert_snapshot!(children(&job));
}

#[test]
fn spread_is_added_to_what_the_user_says() {
    let job = yaml(
        "
metadata: {name: spread}
spec:
  framework: {name: pytorch}
  roles:
  - name: master
    placement: {spread: Required}
    template: {spec: {containers: [{name: train, image: example/ddp}]}}
  - name: worker
    placement: {spread: Required}
    template:
      spec:
        containers: [{name: train, image: example/ddp}]
        affinity:
          nodeAffinity:
            requiredDuringSchedulingIgnoredDuringExecution:
              nodeSelectorTerms:
              - matchExpressions: [{key: zone, operator: In, values: [a]}]
          podAntiAffinity:
            requiredDuringSchedulingIgnoredDuringExecution:
            - topologyKey: rack
              labelSelector: {matchLabels: {app: noisy}}
",
    );
    insta::assert_snapshot!(children(&job));
}

#[test]
fn preferred_spread_over_another_topology_keeps_to_its_own_roles() {
    let job = yaml(
        "
metadata: {name: spread}
spec:
  framework: {name: custom}
  roles:
  - name: a
    placement: {spread: Preferred, topologyKey: topology.kubernetes.io/zone}
    template: {spec: {containers: [{name: train, image: example/a}]}}
  - name: b
    placement: {spread: Required}
    template: {spec: {containers: [{name: train, image: example/b}]}}
  - name: c
    template: {spec: {containers: [{name: train, image: example/c}]}}
",
    );
    insta::assert_snapshot!(children(&job));
}

#[rstest]
#[case::none("", "1", "3")]
#[case::gpus("nvidia.com/gpu: 4", "4", "9")]
#[case::amd("amd.com/gpu: 2", "2", "5")]
#[case::tpu("google.com/tpu: 8", "8", "17")]
#[case::gaudi("habana.ai/gaudi: 8", "8", "17")]
#[case::neuron("aws.amazon.com/neuron: 2", "2", "5")]
#[case::ascend("huawei.com/Ascend910: 8", "8", "17")]
#[case::a_slice_of_a_gpu("nvidia.com/mig-1g.5gb: 1", "1", "3")]
#[case::not_an_accelerator("memory: 4Gi, cpu: 8, example.com/gpu-memory: 20", "1", "3")]
#[case::nonsense("nvidia.com/gpu: 1k", "1", "3")]
fn processes_per_pod_follow_accelerators(#[case] limits: &str, #[case] procs: &str, #[case] world: &str) {
    let container = format!("{{name: train, image: example/ddp, resources: {{limits: {{{limits}}}}}}}");
    let workers =
        format!("  - {{name: worker, replicas: 2, template: {{spec: {{containers: [{container}]}}}}}}\n");
    let pod = pod(&pytorch("", &format!("{MASTER}{workers}")), 1, 0);
    assert_eq!(value(&main_of(&pod), "PET_NPROC_PER_NODE"), procs);
    assert_eq!(
        value(&main_of(&pod), "WORLD_SIZE"),
        world,
        "with the master's one"
    );
}

#[test]
fn processes_per_pod_that_the_user_gave_win_over_accelerators() {
    let container = "{name: train, image: x, resources: {limits: {nvidia.com/gpu: 8}}}";
    let workers =
        format!("  - {{name: worker, replicas: 3, template: {{spec: {{containers: [{container}]}}}}}}\n");
    let pod = pod(&pytorch("procsPerNode: 2", &workers), 0, 1);
    let main = main_of(&pod);
    assert_eq!(value(&main, "PET_NPROC_PER_NODE"), "2");
    assert_eq!(value(&main, "WORLD_SIZE"), "6");
    assert_eq!(value(&main, "PET_NNODES"), "3");
}

#[test]
fn ranks_are_unique_and_the_master_is_rank_0() {
    let job = pytorch("", &format!("{WORKERS}{MASTER}"));
    let ranks =
        [(0, 0), (0, 1), (1, 0)].map(|(role, index)| value(&main_of(&pod(&job, role, index)), "RANK"));
    assert_eq!(ranks, ["1", "2", "0"], "also where the master comes last");
    let job = pytorch("", WORKERS);
    let ranks = [0, 1].map(|index| value(&main_of(&pod(&job, 0, index)), "RANK"));
    assert_eq!(ranks, ["0", "1"]);
}

#[test]
fn a_variable_of_the_user_wins_and_can_refer_to_ours() {
    let job = yaml(
        "
metadata: {name: env}
spec:
  framework: {name: pytorch}
  roles:
  - name: worker
    template:
      spec:
        initContainers: [{name: init, image: i}]
        containers:
        - name: train
          image: x
          env: [{name: PYTHONUNBUFFERED, value: '0'}, {name: URL, value: tcp://$(MASTER_ADDR)}]
",
    );
    let pod = pod(&job, 0, 0);
    let main = main_of(&pod);
    assert_eq!(value(&main, "PYTHONUNBUFFERED"), "0");
    let names: Vec<String> = env(&main).into_iter().map(|(name, _)| name).collect();
    let at = |name: &str| names.iter().position(|n| n == name).unwrap();
    assert!(
        at("MASTER_ADDR") < at("URL"),
        "a variable can refer only to those before it"
    );
    let init = pod.spec.unwrap().init_containers.unwrap().remove(0);
    assert_eq!(
        value(&init, "MASTER_ADDR"),
        value(&main, "MASTER_ADDR"),
        "init containers have them too"
    );
    assert_eq!(value(&init, "PYTHONUNBUFFERED"), "1");
}

#[test]
fn our_own_variables_are_in_every_container() {
    let pod = pod(&pytorch("", &format!("{MASTER}{WORKERS}")), 1, 1);
    let main = main_of(&pod);
    let own = ["TRAINYARD_JOB", "TRAINYARD_ROLE", "TRAINYARD_INDEX"].map(|name| value(&main, name));
    assert_eq!(own, ["ddp", "worker", "1"]);
}

#[rstest]
#[case::added("", &[(29500, Some("pytorch"))])]
#[case::kept("ports: [{containerPort: 29500, name: mine}]", &[(29500, Some("mine"))])]
#[case::beside_others("ports: [{containerPort: 80}]", &[(80, None), (29500, Some("pytorch"))])]
#[case::name_is_taken("ports: [{containerPort: 1, name: pytorch}]", &[(1, Some("pytorch")), (29500, None)])]
#[case::udp_is_another_port(
    "ports: [{containerPort: 29500, protocol: UDP, name: u}]",
    &[(29500, Some("u")), (29500, Some("pytorch"))]
)]
fn the_port_of_rank_0(#[case] ports: &str, #[case] expected: &[(i32, Option<&str>)]) {
    let roles = format!(
        "  - {{name: worker, replicas: 2, template: {{spec: {{containers: [{{name: t, image: x, {ports}}}]}}}}}}\n"
    );
    let job = pytorch("", &roles);
    let ports = |index| {
        let ports = main_of(&pod(&job, 0, index)).ports.unwrap_or_default();
        ports
            .into_iter()
            .map(|port| (port.container_port, port.name))
            .collect::<Vec<_>>()
    };
    let expected: Vec<_> = expected
        .iter()
        .map(|(port, name)| (*port, name.map(str::to_owned)))
        .collect();
    assert_eq!(ports(0), expected);
    assert!(ports(1).len() <= expected.len() && !ports(1).contains(&(29500, Some("pytorch".to_owned()))));
}

#[test]
fn the_address_of_rank_0_is_its_own_name_to_itself_also_with_a_stable_address() {
    let job = pytorch("masterService: ClusterIP", WORKERS);
    let address = |index| value(&main_of(&pod(&job, 0, index)), "MASTER_ADDR");
    assert_eq!(address(0), "ddp-worker-0.ddp.team.svc.cluster.local");
    assert_eq!(address(1), "ddp-master.team.svc.cluster.local");
}

#[test]
fn the_domain_of_the_cluster_is_a_setting() {
    let job = pytorch("", WORKERS);
    let job = Job::parse(&job).unwrap();
    let settings = Settings {
        cluster_domain: "corp.example".to_owned(),
        ..Settings::default()
    };
    let pod = build::pod(&job, &settings, PodKey { role: 0, index: 1 }).unwrap();
    assert_eq!(
        value(&main_of(&pod), "MASTER_ADDR"),
        "ddp-worker-0.ddp.team.svc.corp.example"
    );
}

#[test]
fn lists_of_hosts_are_left_out_for_very_large_roles() {
    let job = |replicas: i32| {
        let template = "{spec: {containers: [{name: main, image: x}]}}";
        yaml(&format!(
            "metadata: {{name: big}}\nspec: {{framework: {{name: custom}}, roles: [\
             {{name: a, replicas: {replicas}, template: {template}}}, {{name: b, template: {template}}}]}}"
        ))
    };
    let listed = |replicas| {
        let env = env(&main_of(&pod(&job(replicas), 0, 0)));
        env.iter().filter(|(name, _)| name == "a" || name == "b").count()
    };
    assert_eq!((listed(255), listed(256)), (2, 1));
}

#[test]
fn lists_of_hosts_are_bounded_by_the_job() {
    let listed = |replicas: i32| {
        let template = "{spec: {containers: [{name: main, image: x}]}}";
        let role = |i: i32| format!("{{name: r{i}, replicas: {replicas}, template: {template}}}");
        let roles = (0..16).map(role).collect::<Vec<_>>().join(", ");
        let job = yaml(&format!(
            "metadata: {{name: big}}\nspec: {{framework: {{name: custom}}, roles: [{roles}]}}"
        ));
        let env = env(&main_of(&pod(&job, 0, 0)));
        env.iter().filter(|(name, _)| name.starts_with('r')).count()
    };
    assert_eq!((listed(16), listed(17)), (16, 0));
}

#[test]
fn which_container_trains_is_not_for_others_to_say() {
    let job = yaml(
        "metadata: {name: two}\nspec: {framework: {name: custom}, roles: [{name: a, container: main, template: {\
         metadata: {annotations: {kubectl.kubernetes.io/default-container: side}}, \
         spec: {containers: [{name: side, image: x}, {name: main, image: x}]}}}]}",
    );
    let annotations = pod(&job, 0, 0).metadata.annotations.unwrap();
    assert_eq!(annotations["trainyard.dev/container"], "main");
    assert_eq!(annotations["kubectl.kubernetes.io/default-container"], "side");
}

#[test]
fn there_is_no_pod_beyond_the_job() {
    let job = pytorch("", WORKERS);
    let job = Job::parse(&job).unwrap();
    for key in [(0, 2), (0, -1), (1, 0)].map(|(role, index)| PodKey { role, index }) {
        assert!(build::pod(&job, &Settings::default(), key).is_none(), "{key:?}");
    }
}

#[rstest]
#[case("ddp-worker-0", Some((1, 0)))]
#[case("ddp-worker-1", Some((1, 1)))]
#[case("ddp-master-0", Some((0, 0)))]
#[case("ddp-worker-2", None)]
#[case("ddp-worker-10", None)]
#[case("ddp-worker-01", None)]
#[case("ddp-worker-+1", None)]
#[case("ddp-worker--1", None)]
#[case("ddp-worker-", None)]
#[case("ddp-worker", None)]
#[case("ddp-other-0", None)]
#[case("ddpworker-0", None)]
#[case("other-worker-0", None)]
#[case("", None)]
fn a_pod_is_known_by_its_name_and_only_in_one_spelling(
    #[case] name: &str,
    #[case] key: Option<(usize, i32)>,
) {
    let job = pytorch("", &format!("{MASTER}{WORKERS}"));
    let job = Job::parse(&job).unwrap();
    assert_eq!(job.key(name), key.map(|(role, index)| PodKey { role, index }));
}
