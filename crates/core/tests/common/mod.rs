//! A world without a cluster: one job, its children as rows, a clock, and hands that carry out a plan, wholly or up to
//! any point at which the operator dies.
//!
//! Every write is checked as it happens: names and UIDs must exist or not as the API server would have it, a status
//! must fit the schema, final states must stay, and every forgiven end must be counted once.

#![allow(dead_code, reason = "each suite uses its own part of the world")]

mod happen;
pub mod jobs;
mod ledger;
pub mod schema;
mod see;

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU64;

use jiff::{SignedDuration, Timestamp};
use trainyard_api::{JobPhase, Progress, TrainingJob, TrainingJobStatus, names};
use trainyard_core::build;
use trainyard_core::exec;
use trainyard_core::job::Job;
use trainyard_core::model::Identity;
use trainyard_core::model::{Action, JobEvent, PodKey, StatusWrite};
use trainyard_core::plan::{Plan, plan};
use trainyard_core::view::{
    Conflict, NodeState, Nodes, PodPhase, PodRow, Refusal, SecretState, ServiceRow, Settings, View,
};

use ledger::Ledger;

/// A status that only differs in counters is written when the last write is this old.
const SOON: SignedDuration = SignedDuration::from_secs(5);

/// A status that differs in successes too is written when the last write is this old.
const EARLY: SignedDuration = SignedDuration::from_secs(1);

/// More rounds than any job may need until nothing is left to do.
const ROUNDS: usize = 40;

/// Whether a pod runs or may yet run.
fn is_alive(row: &PodRow) -> bool {
    !matches!(row.phase, PodPhase::Succeeded | PodPhase::Failed)
}

/// The states of nodes; a node that nobody spoke of is up.
#[derive(Default)]
pub struct NodeTable(HashMap<String, NodeState>);

impl Nodes for NodeTable {
    fn state(&self, name: &str) -> NodeState {
        self.0.get(name).copied().unwrap_or(NodeState::Up)
    }
}

/// What the operator did.
#[derive(Default)]
pub struct Log {
    /// Names of pods in the order of their creation.
    pub pods: Vec<String>,
    /// Names of Services in the order of their creation.
    pub services: Vec<String>,
    /// Names of Secrets in the order of their creation.
    pub secrets: Vec<String>,
    /// How often it was looked whether the Secret is there.
    pub found: usize,
    pub grants: Vec<k8s_openapi::api::rbac::v1::Role>,
    /// Pods whose deletion was asked for, and whether by force.
    pub deleted: Vec<(String, bool)>,
    /// Names of pods that were given their labels back.
    pub labelled: Vec<String>,
    /// Names of Services that were deleted.
    pub deleted_services: Vec<String>,
    /// How often a status was written.
    pub statuses: usize,
    /// What the user was told.
    pub events: Vec<JobEvent>,
}

/// A job and all there is around it.
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that hold or do not, each on its own"
)]
pub struct World {
    pub job: TrainingJob,
    pub pods: Vec<PodRow>,
    pub services: Vec<ServiceRow>,
    /// Pods that the operator has seen end and go.
    pub departed: Vec<PodRow>,
    /// Names of objects of somebody else, which the operator finds when it needs them.
    pub taken: Vec<String>,
    pub conflicts: Vec<Conflict>,
    /// The job's Secret exists.
    pub secret: bool,
    /// What the operator knows of it.
    pub known_secret: SecretState,
    /// For how many pods the operator knows that the job has the right to start programs in.
    pub granted: Option<i32>,
    /// Whether it has just made sure of that.
    pub grant_is_sure: bool,
    /// The job has that right.
    pub grant: bool,
    /// What programs last said of their progress.
    pub progress: Option<Progress>,
    /// The server takes no pod, and says why.
    pub refusal: Option<Refusal>,
    pub nodes: NodeTable,
    pub settings: Settings,
    pub now: Timestamp,
    pub log: Log,
    /// The job was deleted.
    pub gone: bool,
    /// The image each pod was made from, by UID.
    images: HashMap<String, String>,
    /// Which of the job's Secrets each pod has, by UID.
    secrets: HashMap<String, usize>,
    ledger: Ledger,
    uids: u32,
    /// Ends that were told.
    told: u64,
    written: Option<Timestamp>,
}

impl World {
    pub fn new(job: TrainingJob) -> Self {
        Self {
            job,
            pods: Vec::new(),
            services: Vec::new(),
            departed: Vec::new(),
            taken: Vec::new(),
            conflicts: Vec::new(),
            secret: false,
            known_secret: SecretState::Unknown,
            granted: None,
            grant_is_sure: false,
            grant: false,
            progress: None,
            refusal: None,
            nodes: NodeTable::default(),
            settings: Settings::default(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            log: Log::default(),
            gone: false,
            images: HashMap::new(),
            secrets: HashMap::new(),
            ledger: Ledger::default(),
            uids: 0,
            told: 0,
            written: None,
        }
    }

    /// A job whose pods have been made and run.
    pub fn running(job: TrainingJob) -> Self {
        let mut world = Self::new(job);
        world.reconcile();
        world.run_all();
        world.reconcile();
        assert_eq!(world.phase(), Some(JobPhase::Running));
        world
    }

    // What the operator does.

    /// What the operator would do now.
    pub fn plan(&self) -> Plan {
        if self.gone {
            return Plan::default();
        }
        let mut plan = plan(&View {
            job: &self.job,
            pods: &self.pods,
            services: &self.services,
            departed: &self.departed,
            conflicts: &self.conflicts,
            secret: self.known_secret,
            granted: self.granted,
            grant_is_sure: self.grant_is_sure,
            refusal: self.refusal.as_ref(),
            progress: self.progress.as_ref(),
            nodes: &self.nodes,
            settings: &self.settings,
            now: self.now,
        });
        if self.refusal.is_some() {
            // The operator tries again much later.
            let creates = |action: &Action| matches!(action, Action::CreatePod(_));
            plan.actions.retain(|action| !creates(action));
            plan.after.retain(|action| !creates(action));
        }
        plan
    }

    /// Whether a plan asks for nothing now.
    pub fn is_quiet(&self, plan: &Plan) -> bool {
        plan.actions.is_empty()
            && plan.after.is_empty()
            && match &plan.status {
                StatusWrite::Unchanged => true,
                status => !self.is_due(status),
            }
    }

    /// Whether a status is to be written now.
    fn is_due(&self, status: &StatusWrite) -> bool {
        let pace = match status {
            StatusWrite::Unchanged => return false,
            StatusWrite::Soon(_) => SOON,
            StatusWrite::Early(_) => EARLY,
            StatusWrite::Now(_) => return true,
        };
        self.written.is_none_or(|at| self.now.duration_since(at) >= pace)
    }

    /// The operator works until nothing is left to do; returns its last plan, which asks for nothing.
    pub fn reconcile(&mut self) -> Plan {
        for _ in 0..ROUNDS {
            let plan = self.plan();
            if self.is_quiet(&plan) {
                if plan.status == StatusWrite::Unchanged {
                    assert_eq!(plan.events, [], "says again what it has said");
                    self.departed.clear();
                }
                if matches!(self.known_secret, SecretState::There(_)) {
                    // That does not hold for long.
                    self.known_secret = SecretState::Unknown;
                }
                self.grant_is_sure = false;
                return plan;
            }
            self.apply(&plan, usize::MAX);
        }
        panic!("never quiet: {:#?}", self.plan());
    }

    /// The operator makes one plan and dies after that many writes; returns whether it had more to write.
    pub fn crash_after(&mut self, writes: usize) -> bool {
        let plan = self.plan();
        let all = self.apply(&plan, writes);
        // What only that process knew is forgotten.
        self.departed.clear();
        self.conflicts.clear();
        if !all {
            self.known_secret = SecretState::Unknown;
        }
        self.granted = self.granted.filter(|_| all);
        self.grant_is_sure &= all;
        !all
    }

    /// What is late has been late for long enough.
    pub fn be_late(&mut self) {
        for action in self.plan().late {
            self.act(&action);
        }
    }

    /// Carries out up to `budget` writes of a plan; returns whether that was all.
    fn apply(&mut self, plan: &Plan, mut budget: usize) -> bool {
        let mut spend = || {
            let left = budget > 0;
            budget = budget.saturating_sub(1);
            left
        };
        for action in &plan.actions {
            if !spend() {
                return false;
            }
            self.act(action);
        }
        if !plan.actions.is_empty() {
            // The operator looks again before it writes a status, at what has come of its actions.
            return true;
        }
        match &plan.status {
            StatusWrite::Unchanged => self.departed.clear(),
            status if !self.is_due(status) => {
                assert!(
                    plan.after.is_empty(),
                    "destroys evidence before the status keeps it: {plan:#?}"
                );
            }
            StatusWrite::Soon(status) | StatusWrite::Early(status) | StatusWrite::Now(status) => {
                if !spend() {
                    return false;
                }
                self.write(status);
            }
        }
        for action in &plan.after {
            if !spend() {
                return false;
            }
            self.act(action);
        }
        self.log.events.extend(plan.events.iter().cloned());
        true
    }

    fn write(&mut self, status: &TrainingJobStatus) {
        let old = self.job.status.clone().unwrap_or_default();
        schema::check_status(status);
        self.ledger
            .check(&old, status, &self.pods, &self.departed, &self.job);
        self.job.status = Some(status.clone());
        self.departed.clear();
        self.log.statuses += 1;
        self.written = Some(self.now);
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::CreatePod(key) => self.create(*key),
            Action::LabelPod { key, uid } => {
                let name = Job::parse(&self.job).unwrap().pod_name(*key);
                let row = self.pod_mut(&name);
                assert!(*row.uid == **uid && !row.labelled);
                row.labelled = true;
                self.log.labelled.push(name);
            }
            Action::StartPod { name, uid } => {
                let row = self.pod_mut(name);
                assert!(*row.uid == **uid && row.waits);
                row.waits = false;
            }
            Action::CreateService(key) => {
                let job = Job::parse(&self.job).unwrap();
                let name = build::service(&job, *key).unwrap().metadata.name.unwrap();
                if self.meets_another("Service", &name) {
                    return;
                }
                assert!(!self.services.iter().any(|s| *s.name == *name), "{name} exists");
                self.log.services.push(name.clone());
                let uid = self.uid();
                self.services.push(ServiceRow {
                    name: name.into(),
                    uid: uid.into(),
                    terminating: false,
                });
            }
            Action::Grant => {
                let job = Job::parse(&self.job).unwrap();
                let is_known = self.granted == exec::extent(&job);
                self.granted = exec::extent(&job);
                if !(is_known && self.grant) {
                    self.log.grants.push(exec::role(&job).unwrap());
                }
                (self.grant, self.grant_is_sure) = (true, true);
            }
            Action::CreateSecret(identity) => {
                let job = Job::parse(&self.job).unwrap();
                let secret = build::secret(&job, *identity, BTreeMap::new());
                let name = secret.metadata.name.unwrap();
                if self.meets_another("Secret", &name) {
                    return;
                }
                // One that is there is found to be the job's own.
                if !self.secret {
                    self.log.secrets.push(name);
                }
                (self.secret, self.known_secret) = (true, SecretState::There(*identity));
            }
            Action::FindSecret(identity) => {
                self.log.found += 1;
                self.known_secret = if self.secret {
                    SecretState::There(*identity)
                } else {
                    SecretState::Gone(*identity)
                };
            }
            Action::DeletePod { name, uid, force } => {
                self.ledger.deletes(&self.job, name, uid);
                let row = self
                    .pods
                    .iter_mut()
                    .find(|row| *row.name == **name && *row.uid == **uid);
                let row = row.unwrap_or_else(|| panic!("there is no pod {name} {uid}"));
                let at_once = *force || row.node.is_none();
                row.terminating = true;
                if at_once {
                    self.remove(|row| *row.uid == **uid);
                }
                self.log.deleted.push((name.clone(), *force));
            }
            Action::DeleteService { name, uid } => {
                assert!(self.services.iter().any(|s| *s.name == **name && *s.uid == **uid));
                self.services.retain(|s| *s.uid != **uid);
                self.log.deleted_services.push(name.clone());
            }
            Action::DeleteJob => {
                self.gone = true;
                self.pods.clear();
                self.services.clear();
            }
        }
    }

    fn create(&mut self, key: PodKey) {
        let uid = self.uid();
        let job = Job::parse(&self.job).unwrap();
        let pod = build::pod(&job, &self.settings, key).unwrap();
        let account = pod.spec.as_ref().unwrap().service_account_name.as_deref();
        assert!(
            account != Some(&names::mpi_account(job.name)) || self.grant,
            "a pod before its account"
        );
        let needed = pod.spec.as_ref().unwrap().volumes.iter().flatten();
        let made = Identity::ALL.map(|identity| identity.secret_name(job.name));
        let mut needed = needed.filter_map(|volume| volume.secret.as_ref()?.secret_name.as_ref());
        // Those of users are theirs.
        if needed.any(|name| made.contains(name)) {
            assert!(self.secret, "a pod before its Secret");
            let others = self.pods.iter().filter(|row| is_alive(row));
            let theirs = others.filter_map(|row| self.secrets.get(&*row.uid));
            assert!(
                theirs.copied().all(|one| one == self.log.secrets.len()),
                "{:?}: a stranger to others",
                self.pods
            );
            self.secrets.insert(uid.clone(), self.log.secrets.len());
        }
        let name = pod.metadata.name.unwrap();
        if self.meets_another("Pod", &name) {
            return;
        }
        let job = Job::parse(&self.job).unwrap();
        assert!(!self.pods.iter().any(|row| *row.name == *name), "{name} exists");
        let annotations = pod.metadata.annotations.unwrap_or_default();
        let template = annotations
            .get(names::ANNOTATION_TEMPLATE)
            .map(|hash| u64::from_str_radix(hash, 16).unwrap());
        let image = pod.spec.unwrap().containers[0].image.clone().unwrap_or_default();
        self.images.insert(uid.clone(), image);
        self.log.pods.push(name.clone());
        self.departed.retain(|row| *row.name != *name);
        self.pods.push(PodRow {
            name: name.into(),
            uid: uid.into(),
            node: None,
            phase: PodPhase::Pending,
            lingers: false,
            ready: false,
            terminating: false,
            labelled: true,
            released: false,
            waits: false,
            template: template.and_then(NonZeroU64::new),
            address: None,
            end: None,
            trouble: None,
        });
        let live = self
            .pods
            .iter()
            .filter(|row| job.key(&row.name).is_some())
            .count();
        assert!(
            live <= usize::try_from(job.total()).unwrap(),
            "more pods than replicas"
        );
    }

    /// Whether a name is somebody else's, which is then known.
    fn meets_another(&mut self, kind: &'static str, name: &str) -> bool {
        let taken = self.taken.iter().any(|taken| taken == name);
        if taken {
            self.conflicts.push(Conflict {
                kind,
                name: name.to_owned(),
                owner: "Deployment web".to_owned(),
            });
        }
        taken
    }

    /// Pods are gone, and the operator sees it.
    fn remove(&mut self, which: impl Fn(&PodRow) -> bool) {
        let gone = self.pods.extract_if(.., |row| which(row));
        self.departed.extend(gone.filter(|row| !is_alive(row)));
    }

    fn uid(&mut self) -> String {
        self.uids += 1;
        format!("uid-{}", self.uids)
    }
}
