//! The state of a container.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that hold or do not, each on its own"
)]
pub struct Entry {
    /// Its name.
    pub name: String,
    pub image: String,
    /// A restartable init container.
    pub sidecar: bool,
    pub state: State,
    pub last: Option<Terminated>,
    pub before_last: Option<Terminated>,
    pub restarts: i32,
    pub ready: bool,
    pub started: bool,
    /// Whether it has ever started. Other containers wait for that, and may check after it has
    /// ended.
    pub came_up: bool,
    pub id: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum State {
    Waiting { reason: String, message: Option<String> },
    Running { since: Timestamp },
    Terminated(Terminated),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Terminated {
    /// Its exit code.
    pub code: i32,
    /// `Completed`, `Error`, `OOMKilled`, ...
    pub reason: String,
    /// The termination message.
    pub message: Option<String>,
    pub started: Timestamp,
    pub finished: Timestamp,
    pub id: Option<String>,
}

impl State {
    pub fn waiting(reason: &str) -> Self {
        Self::Waiting {
            reason: reason.to_owned(),
            message: None,
        }
    }

    fn shown(&self) -> ContainerState {
        let mut shown = ContainerState::default();
        match self {
            Self::Waiting { reason, message } => {
                shown.waiting = Some(ContainerStateWaiting {
                    reason: Some(reason.clone()),
                    message: message.clone(),
                });
            }
            Self::Running { since } => {
                shown.running = Some(ContainerStateRunning {
                    started_at: Some(Time(*since)),
                });
            }
            Self::Terminated(end) => shown.terminated = Some(end.shown()),
        }
        shown
    }
}

impl Terminated {
    /// The state of a container that never ran.
    fn unknown() -> Self {
        Self {
            code: 137,
            reason: "ContainerStatusUnknown".to_owned(),
            message: Some("The container could not be located when the pod was terminated".to_owned()),
            started: Timestamp::UNIX_EPOCH,
            finished: Timestamp::UNIX_EPOCH,
            id: None,
        }
    }

    fn shown(&self) -> ContainerStateTerminated {
        let time = |at: Timestamp| self.id.is_some().then_some(Time(at));
        ContainerStateTerminated {
            container_id: self.id.clone(),
            exit_code: self.code,
            reason: Some(self.reason.clone()),
            message: self.message.clone(),
            // Container runtimes report a signal in the exit code.
            signal: None,
            started_at: time(self.started),
            finished_at: time(self.finished),
        }
    }
}

impl Entry {
    pub(super) fn runs(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    pub(super) fn has_run(&self) -> bool {
        self.runs() || self.code().is_some() || self.last.is_some()
    }

    /// Records the end of a run that is followed by a restart.
    pub fn remember(&mut self, end: &Terminated) {
        if self.last.as_ref() != Some(end) {
            self.before_last = self.last.replace(end.clone());
        }
    }

    pub fn comes_up(&mut self) {
        self.started = true;
        self.came_up = true;
    }

    pub fn ends(&mut self, end: Terminated) {
        self.id.clone_from(&end.id);
        self.state = State::Terminated(end);
        self.ready = false;
        self.started = false;
    }

    pub(super) fn close(&mut self) {
        if let State::Waiting { .. } = self.state {
            self.state = State::Terminated(self.last.take().unwrap_or_else(Terminated::unknown));
            self.last = self.before_last.take();
            self.ready = false;
            self.started = false;
        }
    }

    pub(super) fn code(&self) -> Option<i32> {
        match &self.state {
            State::Terminated(end) => Some(end.code),
            _ => None,
        }
    }

    pub(super) fn is_initialized(&self) -> bool {
        if self.sidecar {
            self.started
        } else {
            self.code() == Some(0)
        }
    }

    pub(super) fn status(&self, init: bool) -> ContainerStatus {
        let runs = self.runs();
        let ready = if init && !self.sidecar {
            self.code() == Some(0)
        } else {
            self.ready
        };
        ContainerStatus {
            name: self.name.clone(),
            image: self.image.clone(),
            image_id: if self.id.is_some() {
                self.image.clone()
            } else {
                String::new()
            },
            container_id: self.id.clone(),
            state: Some(self.state.shown()),
            last_state: Some(
                self.last
                    .as_ref()
                    .map_or_else(ContainerState::default, |end| ContainerState {
                        terminated: Some(end.shown()),
                        ..ContainerState::default()
                    }),
            ),
            ready,
            restart_count: self.restarts,
            started: Some(runs && self.started),
            ..ContainerStatus::default()
        }
    }
}
