//! Which modules depend on which, level by level.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use crate::source::{Crate, ModulePath};

/// The modules of one parent, and which of them depends on which.
pub struct Graph {
    parent: String,
    /// The first use that makes each module depend on another, by both names.
    edges: BTreeMap<(String, String), Use>,
}

/// A place where one module names another.
struct Use {
    file: PathBuf,
    path: Vec<String>,
}

/// One edge of a circle, in words.
pub type Cycle = Vec<String>;

impl Graph {
    /// The graphs of all levels of a crate at which there is more than one module.
    pub fn levels(read: &Crate) -> Vec<Self> {
        let mut levels: BTreeMap<ModulePath, BTreeMap<(String, String), Use>> = BTreeMap::new();
        for (module, source) in &read.modules {
            for path in &source.uses {
                let target = read.resolve(path);
                let shared = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
                let (Some(from), Some(to)) = (module.get(shared), target.get(shared)) else {
                    continue;
                };
                let parent = module.get(..shared).unwrap_or_default().to_vec();
                let level = levels.entry(parent).or_default();
                level.entry((from.clone(), to.clone())).or_insert_with(|| Use {
                    file: source.file.clone(),
                    path: path.clone(),
                });
            }
        }
        let named = |(parent, edges): (ModulePath, _)| Self {
            parent: [vec![read.name.clone()], parent].concat().join("::"),
            edges,
        };
        levels.into_iter().map(named).collect()
    }

    pub fn parent(&self) -> &str {
        &self.parent
    }

    /// One circle for each group of modules that depend on each other.
    pub fn cycles(&self) -> Vec<Cycle> {
        let mut seen = BTreeSet::new();
        let mut cycles = Vec::new();
        for (from, _) in self.edges.keys() {
            if seen.contains(from) {
                continue;
            }
            if let Some(cycle) = self.shortest_back(from) {
                seen.extend(cycle.iter().cloned());
                cycles.push(self.describe(&cycle));
            }
        }
        cycles
    }

    /// The shortest way from a module back to itself.
    fn shortest_back(&self, start: &str) -> Option<Vec<String>> {
        let mut ways = vec![vec![start.to_owned()]];
        let mut reached = BTreeSet::new();
        while !ways.is_empty() {
            let mut longer = Vec::new();
            for way in ways {
                let last = way.last()?.clone();
                for (_, next) in self.edges.keys().filter(|(from, _)| *from == last) {
                    if next == start {
                        return Some(way);
                    }
                    if reached.insert(next.clone()) {
                        longer.push([way.as_slice(), std::slice::from_ref(next)].concat());
                    }
                }
            }
            ways = longer;
        }
        None
    }

    fn describe(&self, cycle: &[String]) -> Cycle {
        let next = cycle.iter().cycle().skip(1);
        let edge = |(from, to): (&String, &String)| {
            let used = self.edges.get(&(from.clone(), to.clone()));
            let place = used.map(|used| format!("{}: {}", used.file.display(), used.path.join("::")));
            format!("{from} -> {to} ({})", place.unwrap_or_default())
        };
        cycle.iter().zip(next).map(edge).collect()
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut by_module: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (from, to) in self.edges.keys() {
            by_module.entry(from).or_default().push(to);
        }
        for (from, to) in by_module {
            writeln!(f, "{}::{from} -> {}", self.parent, to.join(", "))?;
        }
        Ok(())
    }
}
