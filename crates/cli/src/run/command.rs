//! A job from a command line, for users without a manifest.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use trainyard_api::{GROUP, VERSION};
use trainyard_core::frameworks;
use trainyard_core::registry::Registry;

/// Means no image: the command runs on this machine's own file system.
pub const HOST_IMAGE: &str = "trainyard.dev/this-machine";
/// Leaves room for the role and the index in a pod's name.
const MAX_NAME: usize = 40;

/// The role whose pods run the command. A framework that does not exist is reported with all else
/// that is wrong with the job.
pub fn role(framework: &str, registry: &Registry) -> Result<String> {
    let built_in = frameworks::find(framework);
    let Some(known) = built_in.or_else(|| registry.find(framework)) else {
        return Ok("worker".to_owned());
    };
    let names = || {
        known
            .roles
            .iter()
            .map(|rule| &*rule.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let page = if built_in.is_some() { framework } else { "declared" };
    let role = known.role_of_command().map(ToOwned::to_owned);
    role.with_context(|| {
        format!(
            "{framework} jobs have several roles ({}), each with a command of its own: write a manifest with them, as in \
             docs/frameworks/{page}.md, and run that",
            names()
        )
    })
}

/// A job of which every worker runs the command.
pub fn job(command: &[String], replicas: u16, framework: &str, role: &str, name: Option<&str>) -> Value {
    let name = name.map_or_else(|| derive_name(command), ToOwned::to_owned);
    let command: Vec<String> = command.iter().map(|word| escape_dollars(word)).collect();
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "framework": {"name": framework},
            "roles": [{
                "name": role,
                "replicas": replicas,
                // A user who tries a command wants to see its first failure, not six retries.
                "restartPolicy": "Never",
                "template": {"spec": {"containers": [{
                    "name": "main",
                    "image": HOST_IMAGE,
                    "command": command,
                }]}},
            }],
        },
    })
}

/// Escapes a text so that Kubernetes expands no `$(NAME)` in it.
pub fn escape_dollars(text: &str) -> String {
    text.replace('$', "$$")
}

/// A name that says what runs: that of the script if there is one, else that of the program.
fn derive_name(command: &[String]) -> String {
    // An argument of `sh -c` may have dots, too.
    let plain = |c: char| c.is_alphanumeric() || "./_-".contains(c);
    let file = |word: &&String| !word.starts_with('-') && word.contains('.') && word.chars().all(plain);
    let module = command
        .iter()
        .skip_while(|word| *word != "-m")
        .nth(1)
        .and_then(|module| module.rsplit('.').next());
    let script = command.iter().skip(1).find(file).map(String::as_str);
    let program = command.first().map(String::as_str);
    let word = module.or(script).or(program).unwrap_or_default();
    let base = word.rsplit('/').next().unwrap_or_default();
    let stem = base.split('.').find(|part| !part.is_empty()).unwrap_or_default();
    dns_label(stem)
}

fn dns_label(text: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    let label: String = text.chars().map(plain).take(MAX_NAME).collect();
    let label = label.trim_matches('-');
    match label.chars().next() {
        None => "job".to_owned(),
        Some(first) if first.is_ascii_digit() => format!("job-{label}"),
        Some(_) => label.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use trainyard_core::frameworks::FRAMEWORKS;

    use super::*;
    use crate::validate::checker::Checker;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(ToOwned::to_owned).collect()
    }

    #[test]
    fn the_job_is_valid_and_runs_the_command() {
        let checker = Checker::new().unwrap();
        for framework in [
            "pytorch",
            "tensorflow",
            "deepspeed",
            "jax",
            "xgboost",
            "paddle",
            "bagua",
            "standalone",
            "custom",
        ] {
            let job = job(
                &words("python3 train.py --lr 0.1"),
                4,
                framework,
                &role(framework, &Registry::default()).unwrap(),
                None,
            );
            assert_eq!(checker.check(&job), [], "{framework}");
            assert_eq!(job["spec"]["roles"][0]["replicas"], 4);
            let container = &job["spec"]["roles"][0]["template"]["spec"]["containers"][0];
            assert_eq!(
                container["command"],
                json!(["python3", "train.py", "--lr", "0.1"])
            );
        }
        assert_eq!(
            job(&words("true"), 1, "custom", "worker", Some("mine"))["metadata"]["name"],
            "mine"
        );
        let error = role("mxnet", &Registry::default()).unwrap_err().to_string();
        assert!(
            error.starts_with("mxnet jobs have several roles (scheduler, server, worker)"),
            "{error}"
        );
        for framework in FRAMEWORKS.iter() {
            let Err(error) = role(framework.name(), &Registry::default()) else {
                continue;
            };
            let page = format!("docs/frameworks/{}.md", framework.name());
            assert!(error.to_string().contains(&page), "{error}");
            let file = format!("{}/../../{page}", env!("CARGO_MANIFEST_DIR"));
            assert!(Path::new(&file).exists(), "{file}");
        }
        for framework in ["mpi", "horovod", "dask"] {
            assert!(role(framework, &Registry::default()).is_err(), "{framework}");
        }
        let mut registry = Registry::default();
        let roles = json!([{"name": "head", "required": true}, {"name": "tail", "required": true}]);
        let ring = json!({"metadata": {"name": "ring"}, "spec": {"roles": roles}});
        assert_eq!(registry.declare(&serde_json::from_value(ring).unwrap()), []);
        let error = role("ring", &registry).unwrap_err().to_string();
        assert_eq!(
            error,
            "ring jobs have several roles (head, tail), each with a command of its own: write a manifest with them, as in \
             docs/frameworks/declared.md, and run that"
        );
        let unknown = checker.check(&job(&words("true"), 1, "caffe", "worker", None));
        assert!(unknown[0].message.contains("pytorch"), "{unknown:?}");
    }

    #[test]
    fn words_reach_the_program_as_they_were_written() {
        let job = job(&words("echo a$$b $(RANK) $HOME c"), 1, "custom", "worker", None);
        let container = &job["spec"]["roles"][0]["template"]["spec"]["containers"][0];
        assert_eq!(
            container["command"],
            json!(["echo", "a$$$$b", "$$(RANK)", "$$HOME", "c"])
        );
    }

    #[test]
    fn the_name_says_what_runs() {
        for (line, name) in [
            ("python3 train.py", "train"),
            ("python3 -u src/Train_MNIST.py --data x.csv", "train-mnist"),
            ("python -m torch.distributed.run train.py", "run"),
            ("./main", "main"),
            ("/usr/bin/env bash", "env"),
            ("sh -c 'echo'", "sh"),
            ("python3 3d.py", "job-3d"),
            ("../..", "job"),
        ] {
            assert_eq!(derive_name(&words(line)), name, "{line}");
        }
        let script = ["sh", "-c", "echo 1.5 > /dev/null"].map(ToOwned::to_owned);
        assert_eq!(derive_name(&script), "sh");
        assert!(derive_name(&words(&"x".repeat(300))).len() <= MAX_NAME);
    }
}
