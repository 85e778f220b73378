//! A life in an embedded cluster of its own: the API server, the operator, and played kubelets.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio::time::sleep;
use trainyard_api::{JobPhase, ScaleIn, ScaleOut, ScalePhase, TrainingJob};
use trainyard_local::env::Environment;
use trainyard_testkit::load::{Player, Scope, Script, nodes};
use trainyard_testkit::namespace;

use crate::clock::PausedClock;
use crate::draw::{Happening, JobPlan, Life, NODES, RequestPlan};
use crate::ledger::Ledger;
use crate::operators::Operators;
use crate::programs::Programs;
use crate::record::{Event, JOB, NAMESPACE, Record};

/// How often it is looked whether a life has come to rest, and how many times.
const REST_INTERVAL: Duration = Duration::from_secs(15);
const MAX_RESTS: usize = 60;
/// How long an operator without anything to do is watched.
const QUIET_TIME: Duration = Duration::from_mins(2);
/// How many of the last events are shown of a life that went wrong.
const SHOWN_EVENTS: usize = 120;

/// All that sizes of jobs and their pods come to change by.
pub const HANDLES: [&str; 13] = [
    "scale up",
    "scale down",
    "ScaleOut",
    "ScaleIn by count",
    "ScaleIn by name",
    "ScaleIn by node",
    "fail a pod",
    "delete a pod",
    "suspend",
    "resume",
    "edit max",
    "kill the operator",
    "cut the operator off",
];

/// What a life was full of.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// How often each of the handles has changed something; requests, how many have succeeded.
    pub handles: BTreeMap<&'static str, usize>,
    pub succeeded: usize,
    pub failed: usize,
    pub removals: usize,
    pub kills: usize,
    /// How many operators have died.
    pub deaths: usize,
}

/// Lives a life to its end, and says what was wrong with it.
pub fn live(life: &Life) -> Result<Counts, String> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    runtime.unwrap().block_on(async {
        let mut world = World::start(life).await.map_err(|error| format!("{error:#}"))?;
        match world.play(life).await {
            Ok(()) => Ok(world.counts()),
            Err(error) => Err(world.tell(&error)),
        }
    })
}

struct World {
    client: Client,
    record: Record,
    ledger: Ledger,
    operators: Operators,
    player: Arc<Player>,
    /// What was told, as text.
    history: Vec<String>,
    /// The handle of each request, by its number.
    requests: Vec<&'static str>,
    handles: BTreeMap<&'static str, usize>,
    kills: usize,
    deaths: usize,
}

impl World {
    async fn start(life: &Life) -> Result<Self> {
        let clock = PausedClock::start();
        let environment = Environment::seeded(1).with_clock(Arc::new(clock));
        let server = trainyard_local::api::Api::new(environment);
        let client = server.client(NAMESPACE);
        define(&client).await?;
        namespace::create(&client, NAMESPACE).await?;
        let script = Script::run()
            .start_after(life.cluster.start_time)
            .on_nodes(nodes(&client, NODES).await?);
        let scope = Scope::namespace(NAMESPACE);
        let player = Arc::new(Player::start_by(client.clone(), &scope, script, Arc::new(clock)));
        let record = Record::new(clock);
        let operators = Operators::start(&server, clock, &record, &life.cluster);
        let farewells = life.cluster.farewells.clone();
        let programs = Programs::new(farewells, player.clone(), operators.clone(), record.clone());
        follow(&client, &record, &programs);
        create_job(&client, &life.job).await?;
        Ok(Self {
            client,
            record,
            ledger: Ledger::new(life, clock),
            operators,
            player,
            history: Vec::new(),
            requests: Vec::new(),
            handles: BTreeMap::new(),
            kills: 0,
            deaths: 0,
        })
    }

    async fn play(&mut self, life: &Life) -> Result<()> {
        for (pause, happening) in &life.happenings {
            sleep(*pause).await;
            self.check().await?;
            self.record.add(Event::Happened(format!("{happening:?}")));
            self.happen(happening).await?;
        }
        self.rest(life).await
    }

    /// Checks all that was told up to now.
    async fn check(&mut self) -> Result<()> {
        // Time goes on only when nobody has anything to do: then all that happened was told.
        sleep(Duration::from_millis(1)).await;
        for entry in self.record.take() {
            self.deaths += usize::from(matches!(entry.event, Event::OperatorKilled));
            self.history.push(entry.to_string());
            self.ledger.enter(&entry)?;
        }
        Ok(())
    }

    fn jobs(&self) -> Api<TrainingJob> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    async fn happen(&mut self, happening: &Happening) -> Result<()> {
        let (handle, has_changed) = match happening {
            Happening::Scale(number) => self.scale(*number).await?,
            Happening::ScaleOut(plan, count) => {
                let change = json!({"toAdd": {"count": count}});
                return self.request("ScaleOut", plan, change).await;
            }
            Happening::ScaleInCount(plan, count) => {
                let change = json!({"toDelete": {"count": count}});
                return self.request("ScaleIn by count", plan, change).await;
            }
            Happening::ScaleInPods(plan, positions) => {
                let mut names: Vec<String> =
                    positions.iter().map(|at| format!("{JOB}-worker-{at}")).collect();
                names.sort();
                names.dedup();
                let change = json!({"toDelete": {"podNames": names}});
                return self.request("ScaleIn by name", plan, change).await;
            }
            Happening::ScaleInNode(plan, node) => {
                let change = json!({"toDelete": {"nodeNames": [format!("played-{node}")]}});
                return self.request("ScaleIn by node", plan, change).await;
            }
            Happening::FailPod(position, code) => ("fail a pod", self.strike(*position, Some(*code)).await),
            Happening::DeletePod(position) => ("delete a pod", self.strike(*position, None).await),
            Happening::Suspend => ("suspend", self.suspend(true).await?),
            Happening::Resume => ("resume", self.suspend(false).await?),
            Happening::EditMax(number) => ("edit max", self.edit_max(*number).await?),
            Happening::Kill(away) => {
                self.kills += 1;
                self.operators.kill(*away);
                ("kill the operator", true)
            }
            Happening::KillAtWrite(number, when) => {
                self.kills += 1;
                self.operators.kill_at_write(*number, *when);
                ("kill the operator", true)
            }
            Happening::Outage(time) => {
                self.operators.cut_off(*time);
                ("cut the operator off", true)
            }
        };
        *self.handles.entry(handle).or_default() += usize::from(has_changed);
        Ok(())
    }

    /// What `kubectl scale` does.
    async fn scale(&self, number: u32) -> Result<(&'static str, bool)> {
        let elastic = self.jobs().get(JOB).await?.spec.elastic.unwrap_or_default();
        let target = between(elastic.min(), elastic.max(), number);
        let patch = Patch::Merge(json!({"spec": {"replicas": target}}));
        let jobs = self.jobs();
        jobs.patch_scale(JOB, &PatchParams::default(), &patch).await?;
        let handle = if target > elastic.replicas {
            "scale up"
        } else {
            "scale down"
        };
        Ok((handle, target != elastic.replicas))
    }

    async fn request(&mut self, handle: &'static str, plan: &RequestPlan, change: Value) -> Result<()> {
        let name = request_name(self.requests.len());
        self.requests.push(handle);
        let mut spec = change;
        spec["jobRef"] = json!({"name": JOB});
        spec["policy"] = json!(if plan.clamps { "Clamp" } else { "Refuse" });
        spec["timeoutSeconds"] = json!(plan.timeout_seconds);
        let object = json!({"metadata": {"name": name}, "spec": spec});
        let parameters = PostParams::default();
        if object["spec"].get("toAdd").is_some() {
            let requests: Api<ScaleOut> = Api::namespaced(self.client.clone(), NAMESPACE);
            requests
                .create(&parameters, &serde_json::from_value(object)?)
                .await?;
        } else {
            let mut request: ScaleIn = serde_json::from_value(object)?;
            request.spec.drain_timeout_seconds = plan.drain_seconds;
            let requests: Api<ScaleIn> = Api::namespaced(self.client.clone(), NAMESPACE);
            requests.create(&parameters, &request).await?;
        }
        Ok(())
    }

    /// A worker fails or is deleted. Returns false if it was gone at the same moment.
    async fn strike(&self, position: usize, code: Option<i32>) -> bool {
        let workers = self.ledger.workers();
        let Some((name, uid)) = workers.get(position.checked_rem(workers.len()).unwrap_or_default()) else {
            return false;
        };
        self.record.add(Event::Struck(uid.clone()));
        if let Some(code) = code {
            self.player.fail(NAMESPACE, name, code).await.is_ok()
        } else {
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
            pods.delete(name, &DeleteParams::default()).await.is_ok()
        }
    }

    /// Returns true if the job was not so before.
    async fn suspend(&self, suspend: bool) -> Result<bool> {
        let was_suspended = self.ledger.job().is_some_and(TrainingJob::is_suspended);
        let patch = Patch::Merge(json!({"spec": {"suspend": suspend}}));
        self.jobs().patch(JOB, &PatchParams::default(), &patch).await?;
        Ok(was_suspended != suspend)
    }

    /// Sets `maxReplicas`, and `replicas` so that it fits. Returns true if it was another number.
    async fn edit_max(&self, number: u32) -> Result<bool> {
        loop {
            let job = self.jobs().get(JOB).await?;
            let elastic = job.spec.elastic.unwrap_or_default();
            let max = between(elastic.min(), 6, number);
            let patch = Patch::Merge(json!({
                "metadata": {"resourceVersion": job.metadata.resource_version},
                "spec": {"elastic": {"maxReplicas": max, "replicas": elastic.replicas.min(max)}},
            }));
            match self.jobs().patch(JOB, &PatchParams::default(), &patch).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                result => return result.map(|_| max != elastic.max()).context("maxReplicas"),
            }
        }
    }

    /// Nothing happens any more: every request ends, the job comes to its size, and the operator
    /// has nothing to do.
    async fn rest(&mut self, life: &Life) -> Result<()> {
        let mut unrest = String::new();
        for _ in 0..MAX_RESTS {
            sleep(REST_INTERVAL).await;
            self.check().await?;
            match self.unrest(&life.job) {
                None => return self.quiet().await,
                Some(why) => unrest = why,
            }
        }
        bail!("it never rests: {unrest}")
    }

    async fn quiet(&mut self) -> Result<()> {
        // Counters are written some seconds late.
        sleep(REST_INTERVAL).await;
        let before = self.operators.writes();
        sleep(QUIET_TIME).await;
        self.check().await?;
        let after = self.operators.writes();
        ensure!(
            before == after,
            "an operator without anything to do writes: {before:?}, {after:?}"
        );
        Ok(())
    }

    /// What is not as it should be at the end.
    fn unrest(&self, plan: &JobPlan) -> Option<String> {
        let known = self.ledger.requests();
        if let Some((name, status)) = known.iter().find(|(_, status)| !status.has_ended()) {
            return Some(format!("{name} has not ended: {status:#?}"));
        }
        if known.len() < self.requests.len() {
            return Some("not all requests were seen".to_owned());
        }
        if self.operators.writes().is_none() {
            return Some("the operator is away".to_owned());
        }
        let Some(job) = self.ledger.job() else {
            return Some("there is no job".to_owned());
        };
        let status = job.status.clone().unwrap_or_default();
        let (phase, workers) = (status.phase, self.ledger.workers().len());
        let (replicas, target) = (
            status.replicas.unwrap_or_default(),
            job.spec.elastic.as_ref().map_or(0, |elastic| elastic.replicas),
        );
        let is_well = if phase.is_some_and(JobPhase::is_terminal) {
            true
        } else if job.is_suspended() {
            phase == Some(JobPhase::Suspended) && workers == 0
        } else {
            let is_as_large = replicas == target || !plan.refills && replicas <= target;
            let expected = if replicas < plan.min {
                JobPhase::Paused
            } else {
                JobPhase::Running
            };
            is_as_large
                && status.scaling.is_none()
                && phase == Some(expected)
                && usize::try_from(replicas).is_ok_and(|replicas| replicas == workers)
                && workers == self.ledger.running()
        };
        (!is_well).then(|| format!("the job has {workers} pods: {status:#?}"))
    }

    fn counts(&self) -> Counts {
        let ended = |phase| {
            let requests = self.ledger.requests().values();
            requests.filter(|status| status.phase == Some(phase)).count()
        };
        let mut handles = self.handles.clone();
        for (number, handle) in self.requests.iter().enumerate() {
            let status = self.ledger.requests().get(&request_name(number));
            let has_worked = status.is_some_and(|status| status.phase == Some(ScalePhase::ScaleSucceeded));
            *handles.entry(handle).or_default() += usize::from(has_worked);
        }
        Counts {
            handles,
            succeeded: ended(ScalePhase::ScaleSucceeded),
            failed: ended(ScalePhase::ScaleFailed),
            removals: self.ledger.removals,
            kills: self.kills,
            deaths: self.deaths,
        }
    }

    fn tell(&self, error: &anyhow::Error) -> String {
        let mut text = format!("{error:#}\n");
        let skipped = self.history.len().saturating_sub(SHOWN_EVENTS);
        for line in &self.history[skipped..] {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

fn request_name(number: usize) -> String {
    format!("r{number}")
}

fn between(min: i32, max: i32, number: u32) -> i32 {
    let sizes = u32::try_from(max - min + 1).unwrap_or(1).max(1);
    min + i32::try_from(number % sizes).unwrap_or_default()
}

async fn define(client: &Client) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in trainyard_api::crd::all()? {
        definitions.create(&PostParams::default(), &definition).await?;
    }
    Ok(())
}

fn follow(client: &Client, record: &Record, programs: &Programs) {
    let (hearing, seeing) = (programs.clone(), programs.clone());
    let jobs = "/apis/trainyard.dev/v1alpha1/namespaces/NAMESPACE/trainingjobs";
    record.follow(client, jobs, move |job: TrainingJob, _| {
        hearing.hear(&job);
        Event::Job(Box::new(job))
    });
    record.follow(
        client,
        "/api/v1/namespaces/NAMESPACE/pods",
        move |pod: Pod, is_removed| {
            seeing.see(&pod, is_removed);
            let pod = Box::new(pod);
            if is_removed {
                Event::PodRemoved(pod)
            } else {
                Event::Pod(pod)
            }
        },
    );
    record.follow_requests(client);
}

async fn create_job(client: &Client, plan: &JobPlan) -> Result<()> {
    let container = json!({"name": "main", "image": "example/search", "command": ["train"]});
    let job = json!({
        "metadata": {"name": JOB},
        "spec": {
            "framework": {"name": "custom"},
            "elastic": {
                "replicas": plan.replicas,
                "minReplicas": plan.min,
                "maxReplicas": plan.max,
                "startAt": if plan.starts_at_min { "Min" } else { "Target" },
                "refill": if plan.refills { "Always" } else { "Never" },
                "drainTimeoutSeconds": plan.drain_seconds,
            },
            "runPolicy": {"backoffLimit": plan.backoff_limit},
            "roles": [{
                "name": "worker",
                "restartPolicy": "OnFailure",
                "template": {"spec": {"containers": [container]}},
            }],
        },
    });
    let jobs: Api<TrainingJob> = Api::namespaced(client.clone(), NAMESPACE);
    jobs.create(&PostParams::default(), &serde_json::from_value(job)?)
        .await?;
    Ok(())
}
