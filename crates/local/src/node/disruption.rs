//! The disruption controller: says in the status of each PodDisruptionBudget how many of its pods
//! may be evicted. The API takes from that number with each eviction.

mod scale;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::PostParams;
use kube::core::{Selector, SelectorExt};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};

use super::names::is_ready;
use crate::budget::{self, DELETION_TIMEOUT};
use crate::env::Environment;

const RETRY_INTERVAL: Duration = Duration::from_millis(100);

type Events<K> = BoxStream<'static, Vec<watcher::Result<Event<K>>>>;
/// A namespace and a name.
type Key = (String, String);

/// Runs until it is dropped.
pub(crate) async fn run(client: Client, environment: Environment) {
    let mut budgets: Events<PodDisruptionBudget> = events(&client);
    let mut pods: Option<Events<Pod>> = None;
    let mut state = ClusterState::default();
    loop {
        let recheck = state.sync(&client, environment.now()).await;
        let due = async {
            match recheck {
                Some(delay) => tokio::time::sleep(delay).await,
                None => std::future::pending().await,
            }
        };
        let pod_events = async {
            match &mut pods {
                Some(pods) => pods.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(batch) = budgets.next() => {
                take_all(batch, |event| state.take_budget(event)).await;
                if state.budgets.is_empty() {
                    (pods, state.pods, state.knows_pods) = (None, HashMap::new(), false);
                } else {
                    // Nobody else needs a watch of pods that costs time on every change.
                    pods.get_or_insert_with(|| events(&client));
                }
            }
            Some(batch) = pod_events => take_all(batch, |event| state.take_pod(event)).await,
            () = due => state.changed.extend(state.budgets.keys().cloned()),
        }
    }
}

fn events<K>(client: &Client) -> Events<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + 'static,
    K: serde::de::DeserializeOwned,
{
    let all = watcher(Api::<K>::all(client.clone()), watcher::Config::default());
    all.ready_chunks(1000).boxed()
}

async fn take_all<K>(batch: Vec<watcher::Result<Event<K>>>, mut take: impl FnMut(Event<K>)) {
    for event in batch {
        match event {
            Ok(event) => take(event),
            Err(error) => {
                tracing::warn!(%error, "could not watch pods or their budgets");
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }
}

#[derive(Default)]
struct ClusterState {
    budgets: HashMap<Key, Budget>,
    pods: HashMap<Key, PodState>,
    /// All pods have been listed.
    knows_pods: bool,
    /// Budgets whose status may be out of date.
    changed: HashSet<Key>,
}

struct Budget {
    object: PodDisruptionBudget,
    /// `None` selects nothing.
    selector: Option<Selector>,
}

/// What budgets need of a pod.
struct PodState {
    labels: BTreeMap<String, String>,
    is_ready: bool,
    terminating: bool,
    controller: Option<OwnerReference>,
}

impl Budget {
    fn new(object: PodDisruptionBudget) -> Self {
        let selector = object.spec.as_ref().and_then(|spec| spec.selector.clone());
        let selector = selector.and_then(|selector| Selector::try_from(selector).ok());
        Self { object, selector }
    }

    fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector
            .as_ref()
            .is_some_and(|selector| selector.matches(labels))
    }
}

impl ClusterState {
    fn take_budget(&mut self, event: Event<PodDisruptionBudget>) {
        match event {
            Event::Apply(object) | Event::InitApply(object) => {
                let key = key(&object);
                self.changed.insert(key.clone());
                self.budgets.insert(key, Budget::new(object));
            }
            Event::Delete(object) => {
                self.budgets.remove(&key(&object));
            }
            Event::Init => self.budgets.clear(),
            Event::InitDone => {}
        }
    }

    fn take_pod(&mut self, event: Event<Pod>) {
        match event {
            Event::Apply(pod) | Event::InitApply(pod) => {
                let key = key(&pod);
                let new = PodState {
                    is_ready: is_ready(&pod),
                    terminating: pod.metadata.deletion_timestamp.is_some(),
                    controller: controller(&pod),
                    labels: pod.metadata.labels.unwrap_or_default(),
                };
                self.mark_budgets_of(&key.0, &new.labels);
                if let Some(old) = self.pods.insert(key.clone(), new) {
                    self.mark_budgets_of(&key.0, &old.labels);
                }
            }
            Event::Delete(pod) => {
                let key = key(&pod);
                if let Some(old) = self.pods.remove(&key) {
                    self.mark_budgets_of(&key.0, &old.labels);
                }
            }
            Event::Init => (self.pods, self.knows_pods) = (HashMap::new(), false),
            Event::InitDone => {
                self.knows_pods = true;
                self.changed.extend(self.budgets.keys().cloned());
            }
        }
    }

    fn mark_budgets_of(&mut self, namespace: &str, labels: &BTreeMap<String, String>) {
        let selecting = self
            .budgets
            .iter()
            .filter(|(key, budget)| key.0 == namespace && budget.selects(labels));
        self.changed.extend(selecting.map(|(key, _)| key.clone()));
    }

    /// Writes the status of each budget that has changed. Returns after how long to do it again for
    /// all of them even if nothing changes.
    async fn sync(&mut self, client: &Client, now: Timestamp) -> Option<Duration> {
        if !self.knows_pods {
            return None;
        }
        let mut has_failed = false;
        for key in std::mem::take(&mut self.changed) {
            let Some(budget) = self.budgets.get(&key) else {
                continue;
            };
            let pods = self.pods.iter().filter(|(pod, _)| pod.0 == key.0);
            let pods: Vec<_> = pods
                .filter(|(_, pod)| budget.selects(&pod.labels))
                .map(|((_, name), pod)| (name.as_str(), pod))
                .collect();
            let status = status(client, &budget.object, &pods, now).await;
            has_failed |= !write(client, &budget.object, status).await;
        }
        let statuses = self
            .budgets
            .values()
            .filter_map(|budget| budget.object.status.as_ref());
        let next = statuses.filter_map(recheck_at).min();
        let next = next.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
        let retry = has_failed.then_some(RETRY_INTERVAL);
        let due = [next, retry].into_iter().flatten().min();
        due.map(|delay| delay.max(RETRY_INTERVAL))
    }
}

fn key(object: &impl ResourceExt) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn controller(pod: &Pod) -> Option<OwnerReference> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true)).cloned()
}

/// When a pod that was evicted counts again unless it is deleted.
fn recheck_at(status: &PodDisruptionBudgetStatus) -> Option<Timestamp> {
    let evicted = status.disrupted_pods.iter().flatten();
    let ends = evicted.filter_map(|(_, at)| at.0.checked_add(DELETION_TIMEOUT).ok());
    ends.min()
}

/// The status that a budget should have.
async fn status(
    client: &Client,
    budget: &PodDisruptionBudget,
    pods: &[(&str, &PodState)],
    now: Timestamp,
) -> PodDisruptionBudgetStatus {
    let mut status = budget.status.clone().unwrap_or_default();
    let (expected, desired) = match expectation(client, budget, pods).await {
        Ok(expectation) => expectation,
        Err(why) => {
            budget::fail_safe(&mut status, why, now);
            return status;
        }
    };
    let about_to_go = about_to_go(&status, pods, now);
    let counts = |(name, pod): &&(&str, &PodState)| pod.is_ready && !about_to_go.contains_key(*name);
    let healthy = number(pods.iter().filter(counts).count());
    status.current_healthy = Some(healthy);
    status.desired_healthy = Some(desired);
    status.expected_pods = Some(expected);
    // A budget without pods allows nothing, so that its first pods are safe before they are
    // counted.
    let allowed = if expected > 0 {
        (healthy - desired).max(0)
    } else {
        0
    };
    status.disruptions_allowed = Some(allowed);
    status.disrupted_pods = (!about_to_go.is_empty()).then_some(about_to_go);
    status.observed_generation = budget.metadata.generation;
    budget::tell(&mut status, now);
    status
}

/// The pods that were evicted a moment ago and whose deletion is not seen yet.
fn about_to_go(
    status: &PodDisruptionBudgetStatus,
    pods: &[(&str, &PodState)],
    now: Timestamp,
) -> BTreeMap<String, Time> {
    let is_due = |at: &Time| now.duration_since(at.0) < DELETION_TIMEOUT;
    let stays = |name: &str| pods.iter().any(|(pod, state)| *pod == name && !state.terminating);
    let evicted = status.disrupted_pods.iter().flatten();
    evicted
        .filter(|(name, at)| is_due(at) && stays(name))
        .map(|(name, at)| (name.clone(), at.clone()))
        .collect()
}

/// How many pods a budget expects, and how many of them must be healthy. Kubernetes counts the pods
/// themselves for a number that must be available. In all other cases it asks the controllers of
/// the pods how many there should be, by their subresource `scale`.
async fn expectation(
    client: &Client,
    budget: &PodDisruptionBudget,
    pods: &[(&str, &PodState)],
) -> Result<(i32, i32), String> {
    let spec = budget.spec.clone().unwrap_or_default();
    let available = match spec.min_available {
        Some(IntOrString::Int(available)) => return Ok((number(pods.len()), available)),
        available => available,
    };
    let Some(bound) = spec.max_unavailable.as_ref().or(available.as_ref()) else {
        return Ok((0, 0));
    };
    let namespace = budget.metadata.namespace.as_deref().unwrap_or_default();
    let expected = scale::expected(client, namespace, pods).await?;
    let bounded = share(bound, expected);
    Ok(match spec.max_unavailable {
        Some(_) => (expected, (expected - bounded).max(0)),
        None => (expected, bounded),
    })
}

/// A number of pods, or a percentage of all, rounded up.
fn share(amount: &IntOrString, all: i32) -> i32 {
    match amount {
        IntOrString::Int(amount) => *amount,
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            let share = (i64::from(all) * percent + 99) / 100;
            i32::try_from(share).unwrap_or(i32::MAX)
        }
    }
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Writes a status if it differs. Returns false if that has to be tried again.
async fn write(client: &Client, budget: &PodDisruptionBudget, status: PodDisruptionBudgetStatus) -> bool {
    if budget.status.as_ref() == Some(&status) {
        return true;
    }
    let (namespace, name) = key(budget);
    let mut budget = budget.clone();
    budget.status = Some(status);
    let api = Api::<PodDisruptionBudget>::namespaced(client.clone(), &namespace);
    match api.replace_status(&name, &PostParams::default(), &budget).await {
        Ok(_) => true,
        // An eviction was faster, or the budget is gone. The watch says which.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => true,
        Err(error) => {
            tracing::warn!(budget = name, %error, "could not write what a budget allows");
            false
        }
    }
}

#[cfg(test)]
mod tests;
