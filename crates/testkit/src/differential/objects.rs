//! The objects of the random operations: good ones, odd ones and wrong ones.

use serde_json::Value;

/// A kind, and what is done with it.
pub struct Kind {
    /// Where its group and version are served.
    pub root: &'static str,
    /// Its name in paths.
    pub plural: &'static str,
    /// Whether its status is written apart.
    pub has_status: bool,
    /// Manifests without a name, in JSON.
    pub manifests: &'static [&'static str],
    /// Merge patches, in JSON.
    pub changes: &'static [&'static str],
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.plural)
    }
}

impl Kind {
    /// A manifest.
    pub fn manifest(&self, variant: usize) -> Value {
        parse(self.manifests[variant % self.manifests.len()])
    }

    /// A merge patch.
    pub fn change(&self, index: usize) -> Value {
        parse(self.changes[index % self.changes.len()])
    }
}

#[allow(
    clippy::expect_used,
    reason = "the texts are in this file, and a test reads each"
)]
fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// Pods.
pub fn pods() -> &'static Kind {
    &KINDS[0]
}

/// JSON patches for any kind.
pub const JSON_PATCHES: &[&str] = &[
    r#"[{"op": "add", "path": "/metadata/labels", "value": {"tier": "b"}}]"#,
    r#"[{"op": "test", "path": "/metadata/name", "value": "object-1"}, {"op": "add", "path": "/metadata/annotations", "value": {"a": "1"}}]"#,
    r#"[{"op": "remove", "path": "/metadata/annotations/absent"}]"#,
    r#"[{"op": "replace", "path": "/metadata/finalizers", "value": []}]"#,
    r#"[{"op": "remove", "path": "/metadata/finalizers"}]"#,
];

/// The kinds. Pods come first.
pub const KINDS: &[Kind] = &[
    Kind {
        root: "/api/v1",
        plural: "pods",
        has_status: true,
        manifests: &[
            r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"tier": "a"}}, "spec": {"automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": "example/busybox:1"}]}}"#,
            r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"finalizers": ["example.com/hold"]}, "spec": {"automountServiceAccountToken": false,
                "restartPolicy": "Never", "terminationGracePeriodSeconds": 3, "hostname": "h", "subdomain": "s",
                "containers": [{"name": "main", "image": "example/busybox", "command": ["sh"], "env": [{"name": "A", "value": "1"},
                {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}}, "ports": [{"containerPort": 80}]}],
                "volumes": [{"name": "c", "configMap": {"name": "c"}}, {"name": "e", "emptyDir": {}}]}}"#,
            r#"{"apiVersion": "v1", "kind": "Pod", "spec": {"automountServiceAccountToken": false, "nodeName": "nowhere", "terminationGracePeriodSeconds": 3600,
                "initContainers": [{"name": "init", "image": "example/a:2", "restartPolicy": "Always"}],
                "containers": [{"name": "main", "image": "example/a:2", "readinessProbe": {"exec": {"command": ["true"]}}}]},
                "status": {"phase": "Running"}}"#,
            r#"{"apiVersion": "v1", "kind": "Pod", "spec": {"volumes": [{"name": "own", "emptyDir": {}}],
                "initContainers": [{"name": "init", "image": "a"}],
                "containers": [{"name": "main", "image": "a"}, {"name": "beside", "image": "a", "volumeMounts": [
                {"name": "own", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]}]}}"#,
            r#"{"apiVersion": "v1", "kind": "Pod", "spec": {"serviceAccountName": "object-1", "containers": [{"name": "main", "image": "a"}]}}"#,
            r#"{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}}"#,
            r#"{"apiVersion": "v1", "kind": "Pod", "spec": {"automountServiceAccountToken": false, "containers": [{"name": "main", "image": "a"}, {"name": "main", "image": "b"}]}}"#,
            r#"{"apiVersion": "v1", "kind": "Pod", "spec": {"automountServiceAccountToken": false, "restartPolicy": "Perhaps", "containers": [{"name": "Main", "image": "a"}]}}"#,
            r#"{"apiVersion": "v1", "kind": "Pod", "spec": {"automountServiceAccountToken": false, "containers": [{"name": "main", "image": "a", "volumeMounts": [{"name": "absent", "mountPath": "/a"}]}]}}"#,
        ],
        changes: &[
            r#"{"metadata": {"labels": {"tier": "a", "round": "2"}}}"#,
            r#"{"metadata": {"finalizers": null}}"#,
            r#"{"spec": {"activeDeadlineSeconds": 60}}"#,
            r#"{"spec": {"hostname": "other"}}"#,
            r#"{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}"#,
            r#"{"status": {"phase": "Failed", "reason": "Broken"}}"#,
            r#"{"status": {"phase": "Succeeded"}, "metadata": {"annotations": {"with": "status"}}}"#,
        ],
    },
    Kind {
        root: "/apis/trainyard.dev/v1alpha1",
        plural: "trainingjobs",
        has_status: true,
        manifests: &[
            r#"{"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"labels": {"tier": "a"}}, "spec": {"framework": {"name": "custom"},
                "roles": [{"name": "worker", "template": {"spec": {"containers": [{"name": "main", "image": "a"}]}}}]}}"#,
            r#"{"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"finalizers": ["example.com/hold"]},
                "spec": {"framework": {"name": "pytorch", "pytorch": {"procsPerNode": 2}}, "suspend": true,
                "roles": [{"name": "worker", "replicas": 3, "unknown": 1, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main", "image": "a", "nonsense": true}]}}}],
                "runPolicy": {"backoffLimit": 3}}, "status": {"phase": "Running"}}"#,
            r#"{"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "spec": {"framework": {"name": "custom"}, "roles": []}}"#,
            r#"{"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "spec": {"framework": {"name": "custom"},
                "roles": [{"name": "worker", "replicas": -1, "restartPolicy": "Perhaps", "template": {"spec": {"containers": [{"name": "main", "image": "a"}]}}}]}}"#,
            r#"{"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "spec": {"framework": {"name": "custom"},
                "roles": [{"name": "w", "replicas": "two", "template": {"spec": {"containers": [{"name": "main", "image": "a"}]}}},
                {"name": "w", "template": {"spec": {"containers": [{"name": "main", "image": "a"}]}}}]}}"#,
            r#"{"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob"}"#,
        ],
        changes: &[
            r#"{"metadata": {"labels": {"tier": "b"}}}"#,
            r#"{"metadata": {"finalizers": null}}"#,
            r#"{"spec": {"suspend": true}}"#,
            r#"{"spec": {"suspend": false, "runPolicy": {"backoffLimit": 9}}}"#,
            r#"{"spec": {"runPolicy": {"backoffLimit": -4}}}"#,
            r#"{"spec": null}"#,
            r#"{"spec": {"framework": {"name": "pytorch"}}}"#,
            r#"{"status": {"phase": "Running", "observedGeneration": 1, "extra": true}}"#,
            r#"{"status": {"phase": "Perhaps"}}"#,
        ],
    },
    Kind {
        root: "/api/v1",
        plural: "services",
        has_status: true,
        manifests: &[
            r#"{"apiVersion": "v1", "kind": "Service", "metadata": {"labels": {"tier": "a"}}, "spec": {"clusterIP": "None", "publishNotReadyAddresses": true, "selector": {"a": "b"}}}"#,
            r#"{"apiVersion": "v1", "kind": "Service", "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}, {"name": "two", "port": 81, "targetPort": "x"}]}}"#,
            r#"{"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 29500, "targetPort": 1}]}}"#,
            r#"{"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 0}]}}"#,
            r#"{"apiVersion": "v1", "kind": "Service", "spec": {}}"#,
        ],
        changes: &[
            r#"{"metadata": {"labels": {"tier": "b"}}}"#,
            r#"{"spec": {"ports": [{"port": 90, "protocol": "TCP", "targetPort": 90}]}}"#,
            r#"{"spec": {"selector": {"c": "d"}}}"#,
            r#"{"spec": {"clusterIP": "None"}}"#,
        ],
    },
    Kind {
        root: "/api/v1",
        plural: "configmaps",
        has_status: false,
        manifests: &[
            r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": {"tier": "a"}}, "data": {"a": "1"}}"#,
            r#"{"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}, "immutable": true}"#,
            r#"{"apiVersion": "v1", "kind": "ConfigMap", "data": {"not a key": "1"}}"#,
            r#"{"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": 1}}"#,
        ],
        changes: &[
            r#"{"metadata": {"labels": {"tier": "b"}}}"#,
            r#"{"data": {"a": null, "b": "2"}}"#,
            r#"{"immutable": false}"#,
            r#"{"metadata": {"labels": {"not a label": "b"}}}"#,
        ],
    },
    Kind {
        root: "/api/v1",
        plural: "secrets",
        has_status: false,
        manifests: &[
            r#"{"apiVersion": "v1", "kind": "Secret", "stringData": {"a": "secret"}}"#,
            r#"{"apiVersion": "v1", "kind": "Secret", "metadata": {"labels": {"tier": "a"}}, "data": {"a": "c2VjcmV0"}}"#,
            r#"{"apiVersion": "v1", "kind": "Secret", "data": {"a": "%%%"}}"#,
        ],
        changes: &[
            r#"{"stringData": {"b": "more"}}"#,
            r#"{"type": "another"}"#,
            r#"{"metadata": {"annotations": {"a": "b"}}}"#,
        ],
    },
    Kind {
        root: "/apis/coordination.k8s.io/v1",
        plural: "leases",
        has_status: false,
        manifests: &[
            r#"{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"labels": {"tier": "a"}}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}}"#,
            r#"{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"leaseDurationSeconds": 0}}"#,
        ],
        changes: &[
            r#"{"spec": {"holderIdentity": "you", "leaseTransitions": 2, "renewTime": "2026-01-02T03:04:05.000006Z"}}"#,
            r#"{"spec": {"leaseTransitions": -1}}"#,
        ],
    },
    Kind {
        root: "/apis/policy/v1",
        plural: "poddisruptionbudgets",
        has_status: true,
        manifests: &[
            r#"{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"labels": {"tier": "a"}}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"nobody": "has"}}}}"#,
            r#"{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {"minAvailable": 1, "maxUnavailable": 1}}"#,
        ],
        changes: &[
            r#"{"spec": {"minAvailable": "50%"}}"#,
            r#"{"spec": {"minAvailable": -1}}"#,
        ],
    },
    Kind {
        root: "/api/v1",
        plural: "serviceaccounts",
        has_status: false,
        manifests: &[
            r#"{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"labels": {"tier": "a"}}}"#,
            r#"{"apiVersion": "v1", "kind": "ServiceAccount", "automountServiceAccountToken": false, "imagePullSecrets": [{"name": "s"}]}"#,
        ],
        changes: &[r#"{"automountServiceAccountToken": false}"#],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_json() {
        for kind in KINDS {
            (0..kind.manifests.len()).for_each(|variant| drop(kind.manifest(variant)));
            (0..kind.changes.len()).for_each(|change| drop(kind.change(change)));
        }
        for text in JSON_PATCHES {
            drop(parse(text));
        }
    }
}
