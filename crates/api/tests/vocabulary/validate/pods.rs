//! The rules for pods: their containers, volumes, resources and labels.

use rstest::rstest;

use super::{errors, job, pod, role, spec};

#[rstest]
#[case::no_containers(
    "containers: []",
    "containers: the template has no containers: add at least one"
)]
#[case::a_container_without_a_name(
    "containers: [{name: t, image: i}, {name: '', image: i}]",
    "containers[1].name: the container has no name: give it one"
)]
#[case::an_init_container_without_a_name(
    "containers: [{name: t, image: i}], initContainers: [{name: '', image: i}]",
    "initContainers[0].name: the container has no name: give it one"
)]
#[case::a_container_of_a_wrong_name(
    "containers: [{name: My_Train, image: i}]",
    "containers[0].name: the container's name must consist of lower-case letters, digits and '-', and start and end \
     with a letter or digit"
)]
#[case::two_containers_of_one_name(
    "containers: [{name: t, image: i}, {name: t, image: i}]",
    "containers[1].name: there is a container \"t\" already: give each its own name"
)]
#[case::an_init_container_of_the_same_name(
    "containers: [{name: t, image: i}], initContainers: [{name: t, image: i}]",
    "initContainers[0].name: there is a container \"t\" already: give each its own name"
)]
#[case::no_image(
    "containers: [{name: t}]",
    "containers[0].image: the container has no image: name the one to run"
)]
#[case::an_empty_image(
    "containers: [{name: t, image: ''}]",
    "containers[0].image: the container has no image: name the one to run"
)]
#[case::an_image_with_blanks(
    "containers: [{name: t, image: 'i '}]",
    "containers[0].image: \"i \" has blanks at an end: remove them"
)]
#[case::an_unknown_pull_policy(
    "containers: [{name: t, image: i, imagePullPolicy: Sometimes}]",
    "containers[0].imagePullPolicy: \"Sometimes\" is not possible: give one of Always, IfNotPresent, Never"
)]
#[case::a_restart_policy(
    "containers: [{name: t, image: i}], restartPolicy: Never",
    "restartPolicy: the role decides when its pods are replaced: remove this and set spec.roles[0].restartPolicy"
)]
#[case::a_container_that_is_restarted_in_place(
    "containers: [{name: t, image: i, restartPolicy: OnFailure}]",
    "containers[0].restartPolicy: pods are replaced, not restarted in place: remove this and set \
     spec.roles[0].restartPolicy"
)]
#[case::rules_for_restarts_in_place(
    "containers: [{name: t, image: i, restartPolicyRules: [{action: Restart}]}]",
    "containers[0].restartPolicyRules: pods are replaced, not restarted in place: remove this and see \
     spec.roles[0].restartPolicy"
)]
#[case::an_init_container_that_is_no_sidecar(
    "containers: [{name: t, image: i}], initContainers: [{name: s, image: i, restartPolicy: OnFailure}]",
    "initContainers[0].restartPolicy: \"OnFailure\" is not possible: give Always, for a sidecar, or leave it out"
)]
#[case::a_host_name(
    "containers: [{name: t, image: i}], hostname: h",
    "hostname: pods find each other by names that the operator sets: remove it"
)]
#[case::a_subdomain(
    "containers: [{name: t, image: i}], subdomain: s",
    "subdomain: pods find each other by names that the operator sets: remove it"
)]
#[case::ephemeral_containers(
    "containers: [{name: t, image: i}], ephemeralContainers: [{name: e}]",
    "ephemeralContainers: can only be added to a pod that runs, with kubectl debug: remove them"
)]
#[case::a_mount_without_a_volume(
    "containers: [{name: t, image: i, volumeMounts: [{name: data, mountPath: /data}]}], volumes: [{name: other}]",
    "containers[0].volumeMounts[0].name: there is no volume \"data\" in the template's volumes: add it there, or name \
     one that is there"
)]
#[case::a_mount_of_an_init_container_without_a_volume(
    "containers: [{name: t, image: i}], initContainers: [{name: u, image: i, volumeMounts: [{name: d, mountPath: /d}]}]",
    "initContainers[0].volumeMounts[0].name: there is no volume \"d\" in the template's volumes: add it there, or name \
     one that is there"
)]
#[case::a_device_without_a_volume(
    "containers: [{name: t, image: i, volumeDevices: [{name: d, devicePath: /dev/d}]}]",
    "containers[0].volumeDevices[0].name: there is no volume \"d\" in the template's volumes: add it there, or name one \
     that is there"
)]
#[case::two_mounts_in_one_place(
    "containers: [{name: t, image: i, volumeMounts: [{name: v, mountPath: /d}, {name: v, mountPath: /d}]}], \
     volumes: [{name: v}]",
    "containers[0].volumeMounts[1].mountPath: there is a volume at \"/d\" already: mount each in its own place"
)]
#[case::a_mount_nowhere(
    "containers: [{name: t, image: i, volumeMounts: [{name: v, mountPath: ''}]}], volumes: [{name: v}]",
    "containers[0].volumeMounts[0].mountPath: say where in the container the volume is to appear"
)]
#[case::two_volumes_of_one_name(
    "containers: [{name: t, image: i}], volumes: [{name: v}, {name: v}]",
    "volumes[1].name: there is a volume \"v\" already: give each its own name"
)]
#[case::a_volume_of_a_wrong_name(
    "containers: [{name: t, image: i}], volumes: [{name: 'a b'}]",
    "volumes[0].name: the volume's name must consist of lower-case letters, digits and '-', and start and end with a \
     letter or digit"
)]
#[case::a_volume_of_no_size(
    "containers: [{name: t, image: i}], volumes: [{name: v, emptyDir: {sizeLimit: big}}]",
    "volumes[0].emptyDir.sizeLimit: \"big\" is no amount: write a number with a unit, such as 500m, 2 or 16Gi"
)]
#[case::a_variable_without_a_name(
    "containers: [{name: t, image: i, env: [{name: ''}]}]",
    "containers[0].env[0].name: the variable has no name: give it one"
)]
#[case::a_variable_with_a_value_in_its_name(
    "containers: [{name: t, image: i, env: [{name: 'A=1'}]}]",
    "containers[0].env[0].name: \"A=1\" is no name of a variable: use printable ASCII characters without '='"
)]
#[case::a_value_that_no_variable_can_have(
    "containers: [{name: t, image: i, env: [{name: A, value: \"a\\0b\"}]}]",
    "containers[0].env[0].value: has the character NUL, which no variable can have: remove it"
)]
#[case::one_of_an_init_container(
    "containers: [{name: t, image: i}], initContainers: [{name: u, image: i, env: [{name: A, value: \"\\0\"}]}]",
    "initContainers[0].env[0].value: has the character NUL, which no variable can have: remove it"
)]
#[case::no_port(
    "containers: [{name: t, image: i, ports: [{containerPort: 70000}]}]",
    "containers[0].ports[0].containerPort: 70000 is no port: give a number from 1 to 65535"
)]
#[case::no_protocol(
    "containers: [{name: t, image: i, ports: [{containerPort: 1, protocol: tcp}]}]",
    "containers[0].ports[0].protocol: \"tcp\" is not possible: give one of TCP, UDP, SCTP"
)]
#[case::two_ports_of_one_name(
    "containers: [{name: t, image: i, ports: [{containerPort: 1, name: web}, {containerPort: 2, name: web}]}]",
    "containers[0].ports[1].name: there is a port \"web\" already: give each its own name"
)]
#[case::a_port_of_two_containers(
    "containers: [{name: t, image: i, ports: [{containerPort: 1}, {containerPort: 2, protocol: UDP}]}, \
     {name: u, image: i, ports: [{containerPort: 2}, {containerPort: 1, protocol: TCP}]}]",
    "containers[1].ports[1].containerPort: 1 is a port of the container \"t\" already, and the containers of a pod share \
     one network: give another number"
)]
#[case::a_port_of_a_sidecar(
    "containers: [{name: t, image: i, ports: [{containerPort: 1}]}], initContainers: [\
     {name: u, image: i, ports: [{containerPort: 1}]}, \
     {name: s, image: i, restartPolicy: Always, ports: [{containerPort: 1}]}]",
    "initContainers[1].ports[0].containerPort: 1 is a port of the container \"t\" already, and the containers of a pod \
     share one network: give another number"
)]
#[case::no_name_of_a_port(
    "containers: [{name: t, image: i, ports: [{containerPort: 1, name: a_rather_long_one}]}]",
    "containers[0].ports[0].name: \"a_rather_long_one\" is no name of a port: use at most 15 lower-case letters, \
     digits and single '-', with a letter among them"
)]
#[case::a_node_with_a_wrong_label(
    "containers: [{name: t, image: i}], nodeSelector: {pool: 'a b'}",
    "nodeSelector[pool]: \"a b\" is no value of a label: use at most 63 letters, digits, '-', '_' and '.', and start \
     and end with a letter or digit"
)]
#[case::a_spread_over_nothing(
    "containers: [{name: t, image: i}], topologySpreadConstraints: [{topologyKey: 'bad key'}]",
    "topologySpreadConstraints[0].topologyKey: \"bad key\" is no key of a label: write name or domain/name, the name of \
     at most 63 letters, digits, '-', '_' and '.', which starts and ends with a letter or digit"
)]
#[case::a_place_with_a_colon(
    "containers: [{name: t, image: i, volumeMounts: [{name: v, mountPath: '/a:b'}]}], volumes: [{name: v}]",
    "containers[0].volumeMounts[0].mountPath: \"/a:b\" must not contain ':': mount the volume somewhere else"
)]
#[case::a_volume_of_two_kinds(
    "containers: [{name: t, image: i}], volumes: [{name: v}, {name: w, emptyDir: {}, configMap: {name: c}}]",
    "volumes[1]: may not specify more than 1 volume type, and this has configMap and emptyDir: keep one of them, or make two \
     volumes"
)]
#[case::a_variable_with_two_values(
    "containers: [{name: t, image: i, env: [{name: A, value: a, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}]",
    "containers[0].env[0].valueFrom: may not be specified when `value` is not empty: remove one of the two"
)]
#[case::a_variable_from_nowhere(
    "containers: [{name: t, image: i}], initContainers: [{name: u, image: i, env: [{name: A, valueFrom: {}}]}]",
    "initContainers[0].env[0].valueFrom: must specify one of fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef or \
     fileKeyRef: say where the value is, or remove it"
)]
#[case::a_variable_from_two_places(
    "containers: [{name: t, image: i, env: [{name: A, valueFrom: \
     {fieldRef: {fieldPath: metadata.name}, secretKeyRef: {name: s, key: k}}}]}]",
    "containers[0].env[0].valueFrom: may not have more than one field specified at a time: keep one of them"
)]
#[case::no_server_for_names(
    "containers: [{name: t, image: i}], dnsPolicy: None",
    "dnsConfig.nameservers: must provide at least one DNS nameserver when `dnsPolicy` is None: name one, or give another \
     dnsPolicy"
)]
#[case::an_empty_list_of_servers_for_names(
    "containers: [{name: t, image: i}], dnsPolicy: None, dnsConfig: {nameservers: [], searches: [a]}",
    "dnsConfig.nameservers: must provide at least one DNS nameserver when `dnsPolicy` is None: name one, or give another \
     dnsPolicy"
)]
#[case::an_unknown_way_to_look_up_names(
    "containers: [{name: t, image: i}], dnsPolicy: Mine",
    "dnsPolicy: \"Mine\" is not possible: give one of ClusterFirst, ClusterFirstWithHostNet, Default, None"
)]
#[case::no_time_for_a_pod(
    "containers: [{name: t, image: i}], activeDeadlineSeconds: 0",
    "activeDeadlineSeconds: 0 must be between 1 and 2147483647, inclusive: give another number, or leave it out"
)]
#[case::less_than_no_time_for_a_pod(
    "containers: [{name: t, image: i}], activeDeadlineSeconds: -1",
    "activeDeadlineSeconds: -1 must be between 1 and 2147483647, inclusive: give another number, or leave it out"
)]
#[case::too_much_time_for_a_pod(
    "containers: [{name: t, image: i}], activeDeadlineSeconds: 2147483648",
    "activeDeadlineSeconds: 2147483648 must be between 1 and 2147483647, inclusive: give another number, or leave it out"
)]
#[case::another_priority_than_pods_have_without_a_class(
    "containers: [{name: t, image: i}], priority: 1",
    "priority: the integer value of priority (1) must not be provided in pod spec, because the API server computes it: remove \
     it and name a PriorityClass in priorityClassName"
)]
#[case::a_priority_by_hand(
    "containers: [{name: t, image: i}], priority: 0, priorityClassName: high",
    "priority: the integer value of priority (0) must not be provided in pod spec, because the API server computes it: remove \
     it and name a PriorityClass in priorityClassName"
)]
fn rules_of_the_template(#[case] text: &str, #[case] said: &str) {
    assert_eq!(
        errors(&pod(text)),
        [format!("spec.roles[0].template.spec.{said}")]
    );
}

/// Pods have it that name no class, in a cluster that has none for all, and it is in what
/// `kubectl get -o yaml` shows of them.
#[rstest]
#[case("priority: 0")]
#[case("priority: 0, priorityClassName: ''")]
fn the_priority_that_pods_have_without_a_class_can_be_written_down(#[case] text: &str) {
    let job = pod(&format!("containers: [{{name: t, image: i}}], {text}"));
    assert_eq!(errors(&job), [""; 0]);
}

#[rstest]
#[case::nonsense(
    "{limits: {cpu: lots}}",
    "limits[cpu]: \"lots\" is no amount: write a number with a unit, such as 500m, 2 or 16Gi"
)]
#[case::bytes(
    "{requests: {memory: 16GiB}}",
    "requests[memory]: \"16GiB\" is no amount: write a number with a unit, such as 500m, 2 or 16Gi"
)]
#[case::less_than_nothing(
    "{requests: {cpu: '-1'}}",
    "requests[cpu]: -1 is less than nothing: give 0 or more"
)]
#[case::more_than_the_limit(
    "{requests: {cpu: '2.5'}, limits: {cpu: 2000m}}",
    "requests[cpu]: 2.5 is more than the limit of 2000m: lower it, or raise the limit"
)]
#[case::a_device_without_its_vendor(
    "{limits: {gpu: '1'}}",
    "limits[gpu]: there is no resource \"gpu\": use cpu, memory, ephemeral-storage, hugepages-SIZE, or a device by its \
     whole name, such as nvidia.com/gpu"
)]
#[case::half_a_device(
    "{limits: {nvidia.com/gpu: '0.5'}}",
    "limits[nvidia.com/gpu]: 0.5 is no whole number: devices can't be divided"
)]
#[case::a_device_without_a_limit(
    "{requests: {nvidia.com/gpu: '1'}}",
    "requests[nvidia.com/gpu]: nvidia.com/gpu needs a limit of the same size: write it under limits"
)]
#[case::fewer_devices_than_the_limit(
    "{requests: {nvidia.com/gpu: '1'}, limits: {nvidia.com/gpu: '2'}}",
    "requests[nvidia.com/gpu]: 1 is less than the limit of 2: nvidia.com/gpu needs both to be the same"
)]
fn rules_of_resources(#[case] text: &str, #[case] said: &str) {
    for list in [
        "containers: [{name: t, image: i, resources: HERE}]",
        "containers: [{name: t, image: i}], \
         initContainers: [{name: u, image: i, resources: HERE}]",
    ] {
        let path = if list.contains("init") {
            "initContainers"
        } else {
            "containers"
        };
        let expected = format!("spec.roles[0].template.spec.{path}[0].resources.{said}");
        assert_eq!(errors(&pod(&list.replace("HERE", text))), [expected]);
    }
}

#[test]
fn what_a_pod_may_have() {
    let job = spec(
        "
framework: {name: custom}
roles:
- name: worker
  template:
    spec:
      containers:
      - name: 0-train
        image: registry.example:5000/train@sha256:abc
        resources:
          requests: {cpu: 500m, memory: 1.5Gi, nvidia.com/gpu: 8, hugepages-2Mi: 4Mi}
          limits: {memory: 1536Mi, nvidia.com/gpu: '8', hugepages-2Mi: 4Mi, ephemeral-storage: 1e9}
        env:
        - {name: a.b-c, value: x}
        - {name: WITH BLANK}
        - {name: A, value: '', valueFrom: {resourceFieldRef: {resource: limits.memory}}}
        - {name: B, valueFrom: {configMapKeyRef: {name: c, key: k}}}
        - {name: C, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: k}}}
        ports: [{containerPort: 65535, name: http-1, protocol: SCTP}]
        volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /b}, {name: 1v, mountPath: relative}]
      volumes: [{name: v, emptyDir: {medium: Memory, sizeLimit: 1Gi}}, {name: 1v, hostPath: {path: /}}, {name: none}]
      dnsPolicy: None
      dnsConfig: {nameservers: [10.0.0.1]}
      activeDeadlineSeconds: 2147483647
      priorityClassName: high
      nodeSelector: {kubernetes.io/arch: amd64, empty: ''}
      topologySpreadConstraints: [{topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, maxSkew: 1}]
",
    );
    assert_eq!(errors(&job), [""; 0]);
}

#[rstest]
#[case::a_label_with_a_blank("labels: {a b: c}", "labels[a b]: \"a b\" is no key of a label: ")]
#[case::a_label_with_two_domains("labels: {a/b/c: d}", "labels[a/b/c]: \"a/b/c\" is no key of a label: ")]
#[case::a_label_with_a_wrong_domain("labels: {A_b/c: d}", "labels[A_b/c]: \"A_b/c\" is no key of a label: ")]
#[case::a_value_with_a_blank("labels: {a: b c}", "labels[a]: \"b c\" is no value of a label: ")]
#[case::a_value_with_a_dash_at_its_end("labels: {a: b-}", "labels[a]: \"b-\" is no value of a label: ")]
#[case::an_annotation_with_a_blank(
    "annotations: {a b: c}",
    "annotations[a b]: \"a b\" is no key of an annotation: "
)]
fn rules_of_labels_and_annotations(#[case] text: &str, #[case] said: &str) {
    let of_pods = role(&format!(
        "name: worker, template: {{metadata: {{{text}}}, spec: {{containers: [{{name: t, image: i}}]}}}}"
    ));
    let of_the_job = job(|job| {
        let metadata: trainyard_api::TrainingJob = serde_saphyr::from_str(&format!(
            "{{metadata: {{{text}}}, spec: {{framework: {{name: a}}, roles: []}}}}"
        ))
        .unwrap();
        job.metadata.labels = metadata.metadata.labels;
        job.metadata.annotations = metadata.metadata.annotations;
    });
    for (job, path) in [
        (of_pods, "spec.roles[0].template.metadata"),
        (of_the_job, "metadata"),
    ] {
        let found = errors(&job);
        assert!(found[0].starts_with(&format!("{path}.{said}")), "{found:?}");
        assert_eq!(found.len(), 1, "{found:?}");
    }
}

#[test]
fn annotations_have_a_limit_together() {
    let with =
        |size: usize| job(|job| job.metadata.annotations = Some([("a".to_owned(), "x".repeat(size))].into()));
    assert_eq!(errors(&with(256 * 1024 - 1)), [""; 0]);
    let said =
        "metadata.annotations: has 262145 bytes; at most 262144 are possible: put large things elsewhere";
    assert_eq!(errors(&with(256 * 1024)), [said]);
}
