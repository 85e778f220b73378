//! The commands of containers.

use anyhow::Result;
use k8s_openapi::api::core::v1::Container;
use serde_json::Value;
use trainyard_api::{FieldError, TrainingJob};
use trainyard_core::build;
use trainyard_core::job::Job;
use trainyard_core::model::PodKey;
use trainyard_core::registry::Registry;
use trainyard_core::view::{Agent, Settings};

use super::manifest::refuse;

/// Refuses containers without a command: an image is at most a directory here, and has no entry
/// point. Some frameworks have a default command.
pub fn check(job: &Value, registry: &Registry, agent: Option<Agent>) -> Result<()> {
    let object: TrainingJob = serde_json::from_value(job.clone())?;
    let frameworks = registry.for_job(&object);
    let Ok(job) = Job::parse_with(&object, &frameworks) else {
        // An invalid job is reported elsewhere.
        return Ok(());
    };
    let settings = Settings {
        agent,
        ..Settings::default()
    };
    let mut errors = Vec::new();
    for (r, role) in job.roles.iter().enumerate() {
        let pod = build::pod(&job, &settings, PodKey { role: r, index: 0 });
        let Some(made) = pod.and_then(|pod| pod.spec) else {
            // It needs an agent, which does not exist here; its status says so.
            continue;
        };
        let lists = [
            (
                "initContainers",
                role.pod.init_containers.as_ref(),
                made.init_containers,
            ),
            ("containers", Some(&role.pod.containers), Some(made.containers)),
        ];
        for (list, written, made) in lists {
            for (c, container) in written.into_iter().flatten().enumerate() {
                let made = made.iter().flatten().find(|made| made.name == container.name);
                if made.is_none_or(has_no_command) {
                    errors.push(FieldError::new(
                        format!("spec.roles[{r}].template.spec.{list}[{c}].command"),
                        format!(
                            "is missing, and what an image says to run is not known here: write the command that it has, or \
                             add --set roles.{}.template.spec.{list}.{}.command='[python3, train.py]'",
                            role.name, container.name
                        ),
                    ));
                }
            }
        }
    }
    refuse("the job leaves open what to run", &errors)
}

fn has_no_command(container: &Container) -> bool {
    container.command.as_ref().is_none_or(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(name: &str, container: &Value) -> Value {
        let containers = json!([container]);
        json!({"name": name, "replicas": 1, "template": {"spec": {"containers": containers}}})
    }

    fn job(framework: &str, roles: &[Value]) -> Value {
        json!({
            "apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob",
            "metadata": {"name": "mnist", "namespace": "default"},
            "spec": {"framework": {"name": framework}, "roles": roles},
        })
    }

    fn checked(framework: &str, roles: &[Value]) -> Result<()> {
        let job = job(framework, roles);
        let agent = Agent {
            image: "trainyard".to_owned(),
            image_pull_policy: None,
            may_be_root: true,
            command: vec!["/trainyard".to_owned()],
            observer: None,
        };
        check(&job, &Registry::default(), Some(agent))
    }

    #[test]
    fn a_container_needs_a_command() {
        let silent = json!({"name": "train", "image": "example/mnist", "args": ["train.py"]});
        let error = checked("custom", &[role("worker", &silent)])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("spec.roles[0].template.spec.containers[0].command: is missing"),
            "{error}"
        );
        let help = "--set roles.worker.template.spec.containers.train.command=";
        assert!(error.contains(help), "{error}");
        let said = json!({"name": "train", "image": "example/mnist", "command": ["true"]});
        checked("custom", &[role("worker", &said)]).unwrap();
    }

    #[test]
    fn a_framework_may_know_what_to_run() {
        let silent = json!({"name": "main", "image": "example/mpi"});
        let said = json!({"name": "main", "image": "example/mpi", "command": ["mpirun"]});
        checked("mpi", &[role("launcher", &said), role("worker", &silent)]).unwrap();
        let error = checked("mpi", &[role("launcher", &silent), role("worker", &silent)]).unwrap_err();
        assert!(error.to_string().contains("spec.roles[0]"), "{error}");
        assert!(!error.to_string().contains("spec.roles[1]"), "{error}");
    }

    #[test]
    fn a_job_that_lacks_an_agent_lacks_no_command() {
        let said = json!({"name": "main", "image": "example/mpi", "command": ["mpirun"]});
        check(
            &job("mpi", &[role("launcher", &said), role("worker", &said)]),
            &Registry::default(),
            None,
        )
        .unwrap();
    }
}
