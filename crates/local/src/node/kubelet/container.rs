//! The runs of a container.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container as Spec;
use tokio::time::sleep;

use super::back_off::BackOff;
use super::kill_on_drop::start_guarded;
use super::probes::{KillReason, ProbeEvent, RunningContainer};
use super::status::{Entry, State, Terminated};
use super::worker::{PodWorker, RETRY_INTERVAL};
use super::{env, limits, mounts as volume_mounts, user, workdir};
use crate::node::events::EventType;
use crate::node::runtime::{ContainerSpec, Error, Mount, Root};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

impl RestartPolicy {
    pub fn named(name: Option<&str>) -> Self {
        match name {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    fn restarts(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

/// The prefix of container runtimes for the reason why a command can't be executed.
const NOT_STARTED: &str = "failed to create containerd task: failed to create shim task: OCI runtime create failed: \
                           runc create failed: unable to start container process: ";

enum StartError {
    /// It is retried.
    Later { reason: &'static str, message: String },
    /// This attempt has failed.
    Failed { message: String },
}

impl PodWorker {
    /// Runs a container as its policy says. Returns its last exit code.
    pub(super) async fn supervise(self: Arc<Self>, spec: Spec, policy: RestartPolicy) -> i32 {
        let mut back_off = BackOff::default();
        let mut attempt = 0;
        loop {
            let id = format!("trainyard://{}", self.shared.environment.uuid().replace('-', ""));
            let mut is_killed = false;
            let start = self.start(&spec, attempt).await;
            self.record_start(&spec, start.as_ref().map(drop));
            let end = match start {
                Err(StartError::Later { reason, message }) => {
                    self.update_container(&spec.name, |entry| {
                        entry.state = State::Waiting {
                            reason: reason.to_owned(),
                            message: Some(message),
                        };
                    });
                    sleep(RETRY_INTERVAL).await;
                    continue;
                }
                Err(StartError::Failed { message }) => Terminated {
                    code: 128,
                    reason: "StartError".to_owned(),
                    message: Some(message),
                    started: Timestamp::UNIX_EPOCH,
                    finished: self.now(),
                    id: Some(id.clone()),
                },
                Ok(running) => {
                    let may_hurry = policy != RestartPolicy::Never;
                    let (end, killed) = self.run_once(running, &id, attempt, may_hurry).await;
                    is_killed = killed;
                    end
                }
            };
            let code = end.code;
            self.container_ended(&spec.name, end.clone());
            if !policy.restarts(code) {
                return code;
            }
            let started = if end.started == Timestamp::UNIX_EPOCH {
                end.finished
            } else {
                end.started
            };
            // A kubelet restarts a container that it has killed without a back-off the first time.
            let wait = if is_killed && attempt == 0 {
                Duration::ZERO
            } else {
                back_off.after(started, end.finished)
            };
            if !wait.is_zero() {
                let pod = self.description();
                let message = format!(
                    "back-off {} restarting failed container={} pod={pod}",
                    short(wait),
                    spec.name
                );
                let event = format!("Back-off restarting failed container {} in pod {pod}", spec.name);
                self.record_container_event(&spec, EventType::Warning, "BackOff", event);
                self.update_container(&spec.name, |entry| {
                    entry.remember(&end);
                    entry.state = State::Waiting {
                        reason: "CrashLoopBackOff".to_owned(),
                        message: Some(message),
                    };
                });
                sleep(wait).await;
            }
            self.update_container(&spec.name, |entry| {
                entry.remember(&end);
                entry.restarts += 1;
            });
            attempt += 1;
        }
    }

    /// Runs a container once. Returns how it ended, and whether its probes killed it. A probe's own
    /// grace period counts only if it `may_hurry`: without a restart, the pod ends, with its grace
    /// period.
    async fn run_once(
        &self,
        running: RunningContainer,
        id: &str,
        attempt: u32,
        may_hurry: bool,
    ) -> (Terminated, bool) {
        let spec = &running.spec;
        let since = self.now();
        self.container_started(&spec.name, running.clone(), id, since);
        let hook = spec
            .lifecycle
            .as_ref()
            .and_then(|lifecycle| lifecycle.post_start.as_ref());
        let failed = match hook {
            None => None,
            Some(hook) => running.hook(hook).await.err().map(|error| {
                tracing::debug!(pod = self.description(), error, "a hook failed");
                self.record_container_event(
                    spec,
                    EventType::Warning,
                    "FailedPostStartHook",
                    "PostStartHook failed",
                );
                KillReason {
                    reason: "FailedPostStartHook".to_owned(),
                    grace: None,
                }
            }),
        };
        let on_event = |event| match event {
            ProbeEvent::Started => self.update_container(&spec.name, Entry::comes_up),
            ProbeEvent::Ready(ready) => self.update_container(&spec.name, |entry| entry.ready = ready),
            ProbeEvent::Unhealthy(words) => {
                self.record_container_event(spec, EventType::Warning, "Unhealthy", words);
            }
        };
        let is_started = failed.is_none();
        // Not before: a container is not running before its postStart hook has ended.
        if is_started {
            self.container_running(&spec.name, id, since, spec.startup_probe.is_none());
        }
        let has_to_end = async {
            match failed {
                None => running.watch(on_event).await,
                Some(kill_reason) => kill_reason,
            }
        };
        let (exit, is_killed) = tokio::select! {
            exit = running.container.wait() => (exit, false),
            kill_reason = has_to_end => {
                self.record_container_event(spec, EventType::Normal, "Killing", kill_reason.reason);
                let grace = kill_reason.grace.filter(|_| may_hurry).unwrap_or_else(|| self.grace());
                (self.stop(&running, grace).await, is_started)
            }
        };
        (self.finish(&running, exit, id, since, attempt), is_killed)
    }

    async fn start(&self, spec: &Spec, attempt: u32) -> Result<RunningContainer, StartError> {
        let pod = self.pod_with_addresses();
        let configuration = self.configuration().await;
        let later = |reason: &'static str| move |message: String| StartError::Later { reason, message };
        let options = &self.shared.options;
        let image = spec.image.as_deref().unwrap_or_default();
        let mapped = options.images.get(image);
        let image_user = options.image_user.filter(|_| mapped.is_some());
        let of_services = self.service_variables(&pod).await;
        let of_services =
            of_services.map_err(|error| later("CreateContainerConfigError")(error.to_string()))?;
        let env = env::variables(&pod, spec, &configuration, &of_services)
            .map_err(|missing| later("CreateContainerConfigError")(missing.to_string()))?;
        let (env, command) = self
            .resolve_names(spec, env)
            .await
            .map_err(later("ContainerCreating"))?;
        if let Some(forbidden) = user::forbidden(&pod, spec, image_user) {
            let message = format!(
                "{forbidden} (pod: \"{}\", container: {})",
                self.description(),
                spec.name
            );
            return Err(later("CreateContainerConfigError")(message));
        }
        if spec.command.as_ref().is_none_or(Vec::is_empty) {
            return Err(later("CreateContainerError")(format!(
                "container {} has no command, and what is in the image {image} is not known here: add `command`",
                spec.name
            )));
        }
        let made = self
            .volumes_from(configuration)
            .await
            .map_err(|error| later("ContainerCreating")(error.to_string()))?;
        let mut mounts = Vec::new();
        if workdir::can_be_shared(&options.working_directory) {
            mounts.push(Mount {
                source: options.working_directory.clone(),
                target: options.working_directory.clone(),
                ..Mount::default()
            });
        }
        mounts.extend(self.system_files());
        mounts.push(self.termination_mount(spec, attempt));
        let asked_for = volume_mounts::of(&pod, spec, &made, &env);
        mounts.extend(asked_for.map_err(|error| later("CreateContainerConfigError")(error.to_string()))?);
        let is_root = |path: &&PathBuf| !path.join("pyvenv.cfg").exists();
        let env = env::with_runtime(self.runtime_environment(mapped), env);
        let container = ContainerSpec {
            id: format!("{}-{attempt}", spec.name),
            root: mapped
                .filter(is_root)
                .map_or(Root::Host, |path| Root::Directory(path.clone())),
            mounts,
            read_only_root: spec
                .security_context
                .as_ref()
                .and_then(|context| context.read_only_root_filesystem)
                == Some(true),
            command,
            env,
            working_directory: spec
                .working_dir
                .as_ref()
                .map_or_else(|| options.working_directory.clone(), PathBuf::from),
            user: user::of(&pod, spec, image_user),
            limits: limits::of(spec),
            log: self
                .directory
                .join("logs")
                .join(format!("{}-{attempt}.log", spec.name)),
        };
        let sandbox = self
            .sandbox()
            .ok_or_else(|| later("ContainerCreating")(String::new()))?;
        match start_guarded(sandbox.clone(), container).await {
            Ok(guard) => Ok(RunningContainer {
                spec: spec.clone(),
                container: guard.disarm(),
                address: sandbox.address(),
            }),
            Err(Error::Command(message)) => Err(StartError::Failed {
                message: format!("{NOT_STARTED}{message}: unknown"),
            }),
            Err(error) => Err(StartError::Failed {
                message: error.to_string(),
            }),
        }
    }

    /// Records the events of a start.
    fn record_start(&self, spec: &Spec, outcome: Result<(), &StartError>) {
        let normal =
            |reason, message: &str| self.record_container_event(spec, EventType::Normal, reason, message);
        let failed = |message: &str| {
            self.record_container_event(spec, EventType::Warning, "Failed", format!("Error: {message}"));
        };
        match outcome {
            // Volumes are mounted before images are pulled, and belong to the pod.
            Err(StartError::Later {
                reason: "ContainerCreating",
                message,
            }) => {
                if !message.is_empty() {
                    self.record_event(EventType::Warning, "FailedMount", message);
                }
            }
            Err(StartError::Later { message, .. }) => {
                normal("Pulled", &self.image(spec));
                failed(message);
            }
            Err(StartError::Failed { message }) => {
                normal("Pulled", &self.image(spec));
                normal("Created", "Container created");
                failed(message);
            }
            Ok(()) => {
                normal("Pulled", &self.image(spec));
                normal("Created", "Container created");
                normal("Started", "Container started");
            }
        }
    }

    /// The message about a container's image, which is never pulled.
    fn image(&self, spec: &Spec) -> String {
        let image = spec.image.as_deref().unwrap_or_default();
        match self.shared.options.images.get(image) {
            Some(path) => format!("Container image {image:?} is the directory {}", path.display()),
            None => format!(
                "Container image {image:?} is not pulled: the container has the files of this machine"
            ),
        }
    }
}

/// Formats a duration like Go.
fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}
