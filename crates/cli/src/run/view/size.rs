//! The size of an elastic job, and how the user changes it.

use trainyard_api::{Elastic, Scaling, ScalingStep};

use super::View;
use crate::run::keys::SizeKey;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Size {
    /// How many pods the role has.
    pub now: i32,
    /// How many it is to have.
    pub target: i32,
    pub min: i32,
    /// None without a limit.
    pub max: Option<i32>,
    pub change: Option<Change>,
    /// Whether keys change it.
    pub has_keys: bool,
}

/// Pods that join or leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub role: String,
    /// Their indices, such as "2,4-5".
    pub pods: String,
    /// How far they are with leaving; None of pods that join.
    pub leaving: Option<ScalingStep>,
}

impl View {
    /// Has the size of an elastic job shown with the keys that change it.
    pub fn offer_keys(&mut self) {
        self.has_keys = true;
    }

    /// The size of the job; None if it is not elastic.
    pub fn size(&self) -> Option<Size> {
        let elastic = self.elastic.as_ref()?;
        Some(Size {
            now: self.status.replicas.unwrap_or(elastic.spec.replicas),
            target: elastic.spec.replicas,
            min: elastic.spec.min(),
            max: elastic.spec.max_replicas,
            change: self.status.scaling.as_deref().and_then(|scaling| {
                let (pods, leaving) = who_changes(scaling)?;
                Some(Change {
                    role: self.roles.get(elastic.role)?.0.clone(),
                    pods,
                    leaving,
                })
            }),
            has_keys: self.has_keys && self.stopping.is_none(),
        })
    }

    /// The size that a key asks for. An error says why there is none.
    pub fn next_size(&self, key: SizeKey) -> Result<i32, String> {
        let elastic = self.elastic.as_ref().map(|elastic| &elastic.spec);
        let elastic = elastic.ok_or("the job can't change its size: it has no spec.elastic")?;
        let next = match key {
            SizeKey::More => (elastic.replicas..elastic.max())
                .map(|size| size + 1)
                .find(|size| elastic.is_valid_size(*size)),
            SizeKey::Fewer => elastic.largest_size_within(elastic.replicas - 1),
        };
        next.ok_or_else(|| limit(elastic, key))
    }
}

fn who_changes(scaling: &Scaling) -> Option<(String, Option<ScalingStep>)> {
    match (&scaling.victims, &scaling.joining) {
        (Some(pods), _) => Some((pods.clone(), Some(scaling.step))),
        (None, Some(pods)) => Some((pods.clone(), None)),
        (None, None) => None,
    }
}

fn limit(elastic: &Elastic, key: SizeKey) -> String {
    let size = elastic.replicas;
    match key {
        SizeKey::More => format!("the job has no larger size than {size} (spec.elastic)"),
        SizeKey::Fewer => format!("the job has no smaller size than {size} (spec.elastic)"),
    }
}
