//! Whether the pods of a job fit on this machine at the same time.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use serde_json::Value;

use super::{allocatable, remedies, requests, thousandths};
use crate::validate::text;

/// How many pods are named.
const MAX_NAMED: usize = 4;
/// The most nodes that are recommended, as of `--nodes`.
const MAX_NODES: usize = 1000;
/// The resource of which every pod takes one.
const PODS: &str = "pods";

/// A role, and what a pod of it requests.
pub(super) struct Role<'a> {
    name: &'a str,
    replicas: i32,
    amounts: BTreeMap<String, i128>,
    words: BTreeMap<String, String>,
    remedies: Vec<String>,
}

impl<'a> Role<'a> {
    pub(super) fn new(role: &'a Value, replicas: i32) -> Self {
        let name = text(role, "/name").unwrap_or_default();
        let mut amounts = BTreeMap::from([(PODS.to_owned(), 1000)]);
        let (mut words, mut containers) = (BTreeMap::new(), BTreeSet::new());
        for (resource, requested) in requests(role) {
            words.insert(resource.clone(), requested.words.join(" + "));
            containers.extend(requested.by);
            amounts.insert(resource, requested.amount);
        }
        Self {
            name,
            replicas,
            amounts,
            words,
            remedies: remedies(name, &containers),
        }
    }
}

/// Says which pods find no room beside the others, why, and what helps. `None`: all fit. Each pod
/// alone fits on some node.
pub(super) fn shortage(roles: &[Role<'_>], nodes: &[Node]) -> Option<String> {
    let rooms: Vec<BTreeMap<String, i128>> = nodes.iter().map(room).collect();
    let (waiting, lacking) = place(roles, &rooms);
    if waiting.is_empty() {
        return None;
    }
    let mut sentences = Vec::new();
    for resource in &lacking {
        let each: Vec<String> = roles.iter().filter_map(|role| asked(role, resource)).collect();
        let has = nodes.iter().find_map(|node| allocatable(node, resource));
        let has = has.unwrap_or_else(|| "none".to_owned());
        let whose = match nodes.len() {
            1 => "this machine has".to_owned(),
            count => format!("each of {count} nodes has"),
        };
        sentences.push(format!("of {resource}, {} and {whose} {has}", each.join(", ")));
    }
    let asks = roles.iter().filter(|role| asks_for(role, &lacking));
    let mut help: Vec<&str> = asks
        .flat_map(|role| role.remedies.iter().map(String::as_str))
        .collect();
    let more = enough(roles, &rooms).map(|count| format!("--nodes {count}"));
    help.extend(more.as_deref());
    let help = match &*help {
        [] => String::new(),
        help => format!(", or add {}", help.join(" or ")),
    };
    Some(format!(
        "{} no room beside the other pods: {}. Ask for less or for fewer pods{help}",
        named(&waiting),
        sentences.join("; ")
    ))
}

/// The pods that find no room when all are placed in turn, and the resources that the first of them
/// lacks. As the scheduler does, a pod takes the node with the fewest pods.
fn place(roles: &[Role<'_>], rooms: &[BTreeMap<String, i128>]) -> (Vec<String>, BTreeSet<String>) {
    let mut rooms: Vec<(usize, BTreeMap<String, i128>)> =
        rooms.iter().cloned().map(|room| (0, room)).collect();
    let (mut waiting, mut lacking) = (Vec::new(), BTreeSet::new());
    for role in roles {
        for index in 0..role.replicas {
            let fits = |room: &BTreeMap<String, i128>| lacks(role, room).next().is_none();
            let free = rooms.iter_mut().filter(|(_, room)| fits(room));
            let Some((pods, room)) = free.min_by_key(|(pods, _)| *pods) else {
                waiting.push(format!("{}-{index}", role.name));
                if waiting.len() == 1 {
                    lacking.extend(rooms.iter().flat_map(|(_, room)| lacks(role, room)).cloned());
                }
                continue;
            };
            *pods += 1;
            for (resource, amount) in &role.amounts {
                *room.entry(resource.clone()).or_default() -= amount;
            }
        }
    }
    (waiting, lacking)
}

/// What a pod of a role asks for and a node has not enough of.
fn lacks<'a>(role: &'a Role<'_>, room: &'a BTreeMap<String, i128>) -> impl Iterator<Item = &'a String> {
    let amounts = role.amounts.iter();
    let is_short =
        |resource: &String, amount: i128| amount > 0 && amount > room.get(resource).copied().unwrap_or(0);
    let short = amounts.filter(move |(resource, amount)| is_short(resource, **amount));
    short.map(|(resource, _)| resource)
}

/// How many nodes as these would have room for all.
fn enough(roles: &[Role<'_>], rooms: &[BTreeMap<String, i128>]) -> Option<usize> {
    let pods: i32 = roles.iter().map(|role| role.replicas).sum();
    let most = usize::try_from(pods).unwrap_or_default().min(MAX_NODES);
    let fits = |count: usize| {
        let rooms: Vec<_> = rooms.iter().cycle().take(count).cloned().collect();
        place(roles, &rooms).0.is_empty()
    };
    let (mut least, mut most) = (rooms.len() + 1, most);
    if least > most || !fits(most) {
        return None;
    }
    while least < most {
        let middle = usize::midpoint(least, most);
        if fits(middle) {
            most = middle;
        } else {
            least = middle + 1;
        }
    }
    Some(most)
}

fn room(node: &Node) -> BTreeMap<String, i128> {
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.clone());
    let all = allocatable.into_iter().flatten();
    all.map(|(resource, quantity)| (resource, thousandths(&quantity.0)))
        .collect()
}

/// What a role asks for of a resource, for all of its pods.
fn asked(role: &Role<'_>, resource: &str) -> Option<String> {
    let words = role.words.get(resource).map(String::as_str);
    let words = words.or_else(|| (resource == PODS).then_some("1"))?;
    Some(match role.replicas {
        1 => format!("the pod of {} asks for {words}", role.name),
        count => format!("{count} pods of {} ask for {words} each", role.name),
    })
}

fn asks_for(role: &Role<'_>, resources: &BTreeSet<String>) -> bool {
    role.words.keys().any(|resource| resources.contains(resource))
}

fn named(pods: &[String]) -> String {
    let (first, rest) = pods.split_at(pods.len().min(MAX_NAMED));
    match (first, rest.len()) {
        ([one], _) => format!("{one} finds"),
        ([all @ .., last], 0) => format!("{} and {last} find", all.join(", ")),
        (first, more) => format!("{} and {more} more find", first.join(", ")),
    }
}
