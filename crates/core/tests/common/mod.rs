//! A world without a cluster: one job, its children as rows, a clock, and hands that carry out a
//! plan, wholly or up to any point at which the operator dies.
//!
//! Every write is checked as it happens: names and UIDs must exist or not as the API server would
//! have it, a status must fit the schema, final states must stay, and every forgiven end must be
//! counted once.

#![allow(dead_code, reason = "each suite uses its own part of the world")]

mod happen;
pub mod jobs;
mod ledger;
pub mod schema;
mod see;

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use trainyard_api::{JobPhase, Progress, Scaling, ScalingStep, TrainingJob, TrainingJobStatus, names};
use trainyard_core::build;
use trainyard_core::disruption_budget::budget;
use trainyard_core::indices;
use trainyard_core::job::Job;
use trainyard_core::local_state::{CreateBackoff, ExecRightState, LocalState, SecretState};
use trainyard_core::model::Identity;
use trainyard_core::model::{Action, DrainSummary, JobEvent, PodKey, PodNames};
use trainyard_core::notice::Notice;
use trainyard_core::plan::{Plan, Step, plan};
use trainyard_core::registry::Registry;
use trainyard_core::view::{
    BudgetRow, Budgets, Conflict, NodeState, Nodes, PodPhase, PodRow, Refusal, ServiceRow, Settings, View,
};

use ledger::Ledger;

/// More rounds than any job may need until nothing is left to do.
const ROUNDS: usize = 40;

/// Whether a pod runs or may yet run.
fn is_alive(row: &PodRow) -> bool {
    !matches!(row.phase, PodPhase::Succeeded | PodPhase::Failed)
}

/// The states of nodes, and what they say about going; a node that nobody spoke of is up.
#[derive(Default)]
pub struct NodeTable(HashMap<String, NodeState>, HashMap<String, Notice>);

impl Nodes for NodeTable {
    fn state(&self, name: &str) -> NodeState {
        self.0.get(name).copied().unwrap_or(NodeState::Up)
    }

    fn notice(&self, name: &str) -> Option<&Notice> {
        self.1.get(name)
    }

    fn are_known(&self) -> bool {
        true
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
    /// The pods that the exec right was made to cover, every time that it changed.
    pub grants: Vec<Vec<String>>,
    /// Pods whose deletion was asked for, and whether by force.
    pub deleted: Vec<(String, bool)>,
    /// Names of pods that were given their labels back.
    pub labelled: Vec<String>,
    /// Names of Services that were deleted.
    pub deleted_services: Vec<String>,
    /// How many disruption budgets were created.
    pub budgets: usize,
    /// How many disruption budgets were deleted.
    pub deleted_budgets: usize,
    /// How often a status was written.
    pub statuses: usize,
    /// What the user was told.
    pub events: Vec<JobEvent>,
    /// What was counted of pods that were told to leave, whenever there was something.
    pub drains: Vec<DrainSummary>,
}

/// A job and all there is around it.
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
    /// What only the operator's process knows.
    pub local: LocalState,
    /// The job's account exists, and the pods that its exec right covers.
    pub covered: Option<PodNames>,
    /// What programs last said of their progress.
    pub progress: Option<Progress>,
    /// The server takes no pod, and says why.
    pub refusal: Option<Refusal>,
    pub nodes: NodeTable,
    /// The disruption budgets that the operator sees.
    pub budgets: Option<Budgets>,
    pub settings: Settings,
    /// The frameworks that were declared.
    pub registry: Registry,
    pub now: Timestamp,
    pub log: Log,
    /// The job was deleted.
    pub gone: bool,
    /// The image each pod was made from, by UID.
    images: HashMap<String, String>,
    /// The variables of the first container of each pod, by UID.
    variables: HashMap<String, HashMap<String, String>>,
    /// Which of the job's Secrets each pod has, by UID.
    secrets: HashMap<String, usize>,
    ledger: Ledger,
    uids: u32,
    /// Ends that were told.
    told: u64,
    /// The start of the world by the operator's monotonic clock.
    start: (Timestamp, Instant),
}

impl World {
    pub fn new(job: TrainingJob) -> Self {
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        Self {
            job,
            pods: Vec::new(),
            services: Vec::new(),
            departed: Vec::new(),
            taken: Vec::new(),
            conflicts: Vec::new(),
            secret: false,
            local: LocalState::default(),
            covered: None,
            progress: None,
            refusal: None,
            nodes: NodeTable::default(),
            budgets: None,
            settings: Settings::default(),
            registry: Registry::default(),
            now: start,
            log: Log::default(),
            gone: false,
            images: HashMap::new(),
            variables: HashMap::new(),
            secrets: HashMap::new(),
            ledger: Ledger::default(),
            uids: 0,
            told: 0,
            // So late that a long time before it can be told, too.
            start: (start, Instant::now() + Duration::from_hours(24)),
        }
    }

    /// The operator works until a job that starts says so.
    pub fn start(&mut self) {
        self.reconcile();
        self.tick(2);
        self.reconcile();
        assert_eq!(self.phase(), Some(JobPhase::Starting));
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

    /// This moment by the operator's monotonic clock.
    pub fn instant(&self) -> Instant {
        let (time, instant) = self.start;
        instant + Duration::try_from(self.now.duration_since(time)).unwrap()
    }

    /// What the operator would do now, once it is confirmed that pods which are not there are gone.
    pub fn plan(&self) -> Plan {
        self.plan_with(&self.local, true)
    }

    fn plan_with(&self, local: &LocalState, absence_is_confirmed: bool) -> Plan {
        if self.gone {
            return Plan::default();
        }
        let mut local = local.clone();
        if self.refusal.is_some() {
            // The operator tries again much later.
            local.create_backoff = Some(CreateBackoff {
                until: self.instant() + Duration::from_hours(1),
                failures: 9,
                generation: self.job.metadata.generation,
                kind: None,
            });
        }
        self.view(&local, absence_is_confirmed, plan)
    }

    /// Calls a function with what the operator sees now.
    pub fn see<R>(&self, look: impl FnOnce(&View<'_>) -> R) -> R {
        self.view(&self.local, true, look)
    }

    fn view<R>(
        &self,
        local: &LocalState,
        absence_is_confirmed: bool,
        look: impl FnOnce(&View<'_>) -> R,
    ) -> R {
        look(&View {
            job: &self.job,
            frameworks: &self.registry.for_job(&self.job),
            pods: &self.pods,
            services: &self.services,
            departed: &self.departed,
            conflicts: &self.conflicts,
            local,
            absence_is_confirmed,
            refusal: self.refusal.as_ref(),
            progress: self.progress.as_ref(),
            nodes: &self.nodes,
            budgets: self.budgets.as_ref(),
            settings: &self.settings,
            now: self.now,
            instant: self.instant(),
        })
    }

    /// The writes that the operator would send now.
    pub fn actions(&self) -> Vec<Action> {
        match self.plan().step() {
            Step::Act(actions) => actions,
            _ => Vec::new(),
        }
    }

    /// The writes that the operator would send once it has written the status.
    pub fn actions_after_status(&self) -> Vec<Action> {
        match self.plan().step() {
            Step::WriteStatus(change) => change.then,
            _ => Vec::new(),
        }
    }

    /// The writes that the operator would send if what should happen by itself had been overdue for
    /// long.
    pub fn overdue(&self) -> Vec<Action> {
        let mut local = self.local.clone();
        local.waits.overdue_since = self.instant().checked_sub(Duration::from_hours(1));
        let (before, plan) = (self.plan(), self.plan_with(&local, true));
        let is_new = |action: &&Action| !before.actions().any(|other| other == *action);
        plan.actions().filter(is_new).cloned().collect()
    }

    /// When the operator looks again, but for a status that only waits to be written.
    pub fn due(plan: &Plan) -> Option<Timestamp> {
        plan.wake_at().filter(|_| plan.clone().step() != Step::Wait)
    }

    /// The pods whose absence the operator would confirm now.
    pub fn missing(&self) -> Vec<String> {
        match self.plan_with(&self.local, false).step() {
            Step::ConfirmAbsence(pods) => pods,
            _ => Vec::new(),
        }
    }

    /// Whether a plan asks for nothing now.
    pub fn is_quiet(plan: &Plan) -> bool {
        matches!(plan.clone().step(), Step::Wait | Step::Done)
    }

    /// The operator works until nothing is left to do; returns its last plan, which asks for
    /// nothing.
    pub fn reconcile(&mut self) -> Plan {
        for _ in 0..ROUNDS {
            let plan = self.plan();
            if Self::is_quiet(&plan) {
                self.apply(&plan, usize::MAX);
                self.local.doubt_unwatched();
                return plan;
            }
            self.apply(&plan, usize::MAX);
        }
        panic!("never quiet: {:#?}", self.plan());
    }

    /// The operator works for a second, after which statuses are written that wait for others.
    pub fn reconcile_for_a_second(&mut self) -> Plan {
        self.reconcile();
        self.tick(1);
        self.reconcile()
    }

    /// The operator makes one plan and dies after that many writes; returns whether it had more to
    /// write.
    pub fn crash_after(&mut self, writes: usize) -> bool {
        let plan = self.plan();
        let all = self.apply(&plan, writes);
        // What only that process knew is forgotten.
        self.departed.clear();
        self.conflicts.clear();
        if !all {
            self.local = LocalState::default();
        }
        !all
    }

    /// What should happen by itself has been overdue for long enough.
    pub fn be_late(&mut self) {
        for action in self.overdue() {
            self.act(&action);
        }
    }

    /// Carries out up to `budget` writes of a plan's next step; returns whether that was all.
    fn apply(&mut self, plan: &Plan, mut budget: usize) -> bool {
        self.local.record_plan(plan.waits(), plan.moot_backoffs());
        let mut spend = || {
            let left = budget > 0;
            budget = budget.saturating_sub(1);
            left
        };
        match plan.clone().step() {
            // Names are freed by `free_names`, which the operator finds at once.
            Step::CheckConflicts => self.local.conflicts_checked_at = Some(self.instant()),
            Step::ConfirmAbsence(pods) => panic!("confirms again what it has confirmed: {pods:?}"),
            Step::Act(actions) => {
                for action in actions {
                    if !spend() {
                        return false;
                    }
                    self.act(&action);
                }
            }
            Step::WriteStatus(change) => {
                if !spend() {
                    return false;
                }
                self.write(&change.status);
                for action in change.then {
                    if !spend() {
                        return false;
                    }
                    self.act(&action);
                }
                self.log.events.extend(change.events);
                let drain = Some(change.drain).filter(|drain| *drain != DrainSummary::default());
                self.log.drains.extend(drain);
            }
            Step::Wait => {}
            Step::Done => {
                assert_eq!(plan.events(), [], "says again what it has said");
                self.departed.clear();
            }
        }
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
        self.local.record_status_write(self.instant());
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::CreatePod(key) => self.create(*key),
            Action::LabelPod { key, uid } => {
                let frameworks = self.registry.for_job(&self.job);
                let job = Job::parse_with(&self.job, &frameworks).unwrap();
                let (name, passed_on) = (job.pod_name(*key), job.passed_on);
                let row = self.pod_mut(&name);
                let passed_on = passed_on.unwrap_or(row.passed_on);
                assert!(*row.uid == **uid && !(row.labelled && row.passed_on == passed_on));
                row.labelled = true;
                row.passed_on = passed_on;
                self.log.labelled.push(name);
            }
            Action::StartPod { name, uid } => {
                let row = self.pod_mut(name);
                assert!(*row.uid == **uid && row.waits);
                row.waits = false;
            }
            Action::CreateService(key) => {
                let frameworks = self.registry.for_job(&self.job);
                let job = Job::parse_with(&self.job, &frameworks).unwrap();
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
            Action::CreateExecRight => {
                let is_new = self.covered.is_none();
                self.covered.get_or_insert_default();
                self.local.record_exec_right(is_new);
            }
            Action::Grant(pods) => self.grant(pods),
            Action::CreateSecret(identity) => {
                let frameworks = self.registry.for_job(&self.job);
                let job = Job::parse_with(&self.job, &frameworks).unwrap();
                let secret = build::secret(&job, *identity, BTreeMap::new());
                let name = secret.metadata.name.unwrap();
                if self.meets_another("Secret", &name) {
                    return;
                }
                // One that is there is found to be the job's own.
                if !self.secret {
                    self.log.secrets.push(name);
                }
                (self.secret, self.local.secret) = (true, SecretState::Exists(*identity));
            }
            Action::FindSecret(identity) => {
                self.log.found += 1;
                self.local.secret = if self.secret {
                    SecretState::Exists(*identity)
                } else {
                    SecretState::Missing(*identity)
                };
            }
            Action::DeletePod { name, uid, force } => {
                let attempt = self.pods.iter().find(|row| *row.uid == **uid);
                let attempt = attempt.map_or(0, |row| row.attempt);
                self.ledger.deletes(&self.job, name, uid, attempt);
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
            Action::CreateBudget => self.create_budget(),
            Action::DeleteBudget { name, uid } => {
                let Budgets { own, foreign, .. } = self.budgets.as_mut().unwrap();
                let is_deleted = |row: &BudgetRow| *row.name == **name && *row.uid == **uid;
                assert!(own.iter().chain(&**foreign).any(is_deleted));
                for rows in [own, foreign] {
                    Arc::make_mut(rows).retain(|row| !is_deleted(row));
                }
                self.log.deleted_budgets += 1;
            }
            Action::DeleteJob => {
                self.gone = true;
                self.pods.clear();
                self.services.clear();
            }
        }
    }

    fn create_budget(&mut self) {
        let uid = self.uid();
        let frameworks = self.registry.for_job(&self.job);
        let job = Job::parse_with(&self.job, &frameworks).unwrap();
        let made = budget(&job, &self.settings).unwrap();
        let row = BudgetRow {
            name: made.metadata.name.unwrap().into(),
            uid: uid.into(),
            terminating: false,
            is_orphan: false,
            spec: made.spec.unwrap(),
        };
        let Budgets { own, foreign, .. } = self.budgets.as_mut().unwrap();
        assert!(
            !own.iter().chain(&**foreign).any(|known| known.name == row.name),
            "{} exists",
            row.name
        );
        Arc::make_mut(own).push(row);
        self.log.budgets += 1;
    }

    /// The right covers these pods, which must exist and be the job's own.
    fn grant(&mut self, pods: &PodNames) {
        for name in &**pods {
            assert!(
                self.pods.iter().any(|row| row.name == *name),
                "{name} is not ours"
            );
        }
        let Some(covered) = &mut self.covered else {
            self.local.record_grant(ExecRightState::Missing);
            return;
        };
        if covered != pods {
            self.log
                .grants
                .push(pods.iter().map(ToString::to_string).collect());
            *covered = pods.clone();
        }
        self.local.record_grant(ExecRightState::Covers(pods.clone()));
    }

    fn create(&mut self, key: PodKey) {
        let uid = self.uid();
        let frameworks = self.registry.for_job(&self.job);
        let job = Job::parse_with(&self.job, &frameworks).unwrap();
        let pod = build::new_pod(
            &job,
            &self.settings,
            key,
            build::unrecorded_spec(&self.job, &frameworks),
        )
        .unwrap();
        let account = pod.spec.as_ref().unwrap().service_account_name.as_deref();
        assert!(
            account != Some(&names::mpi_account(job.name)) || self.covered.is_some(),
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
        let frameworks = self.registry.for_job(&self.job);
        let job = Job::parse_with(&self.job, &frameworks).unwrap();
        assert!(!self.pods.iter().any(|row| *row.name == *name), "{name} exists");
        let annotations = pod.metadata.annotations.unwrap_or_default();
        let template = annotations
            .get(names::ANNOTATION_TEMPLATE)
            .map(|hash| u64::from_str_radix(hash, 16).unwrap());
        let spec = annotations
            .get(names::ANNOTATION_SPEC)
            .and_then(|hash| NonZeroU64::new(u64::from_str_radix(hash, 16).unwrap()));
        let attempt: Option<i32> = annotations
            .get(names::ANNOTATION_ATTEMPT)
            .map(|attempt| attempt.parse().unwrap());
        let main = pod.spec.unwrap().containers.swap_remove(0);
        self.images.insert(uid.clone(), main.image.unwrap_or_default());
        let variables = main.env.into_iter().flatten();
        let variables = variables.filter_map(|variable| Some((variable.name, variable.value?)));
        self.variables.insert(uid.clone(), variables.collect());
        self.assert_former_have_left(&job, key, &name);
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
            passed_on: job.passed_on.unwrap_or_default(),
            released: false,
            waits: false,
            template: template.and_then(NonZeroU64::new),
            spec,
            attempt: attempt.unwrap_or_default(),
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

    /// Pods that start anew together do so when all of the former ones have left.
    fn assert_former_have_left(&self, job: &Job<'_>, key: PodKey, name: &str) {
        let scaling = self
            .job
            .status
            .as_ref()
            .and_then(|status| status.scaling.as_deref());
        let role = job.roles[key.role].name;
        // Others go on while pods leave a node.
        let is_told = |scaling: &&Scaling| {
            let told = scaling.roles.iter().find(|told| told.name == role);
            let told = told.and_then(|told| told.victims.as_deref()).unwrap_or_default();
            !scaling.evades() || indices::parse(told, i32::MAX).contains(&key.index)
        };
        let restarts = scaling.filter(|scaling| scaling.restarts_all()).filter(is_told);
        assert!(
            restarts.is_none_or(|scaling| scaling.step == ScalingStep::Joining),
            "{name} is created before all pods have left: {restarts:#?}"
        );
        let group = self
            .job
            .status
            .as_ref()
            .and_then(|status| status.restarts.as_ref()?.group.clone());
        let roles = group.map(|group| group.roles).unwrap_or_default();
        let of_group = |row: &&PodRow| {
            let role = job.key(&row.name).map(|key| job.roles[key.role].name.to_owned());
            role.is_some_and(|role| roles.contains(&role))
        };
        let is_former = |row: &PodRow| ledger::is_former(&self.job, &row.name, row.attempt);
        assert!(
            !roles.contains(&job.roles[key.role].name.to_owned())
                || !self.pods.iter().filter(of_group).any(is_former),
            "{name} is created before all pods of the former attempt are gone"
        );
    }

    /// Whether a name is somebody else's, which is then known.
    fn meets_another(&mut self, kind: &'static str, name: &str) -> bool {
        let taken = self.taken.iter().any(|taken| taken == name);
        if taken {
            self.local.conflicts_checked_at = Some(self.instant());
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
