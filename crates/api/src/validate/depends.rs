//! The rules for roles that wait for each other.

use super::FieldError;
use super::at::At;
use crate::role::{CreatePolicy, DependencyState, RoleSpec};

pub(super) fn check(roles: &[RoleSpec], errors: &mut Vec<FieldError>) {
    let root = At::root("spec.roles");
    for (i, role) in roles.iter().enumerate() {
        let at = root.index(i);
        let list = at.field("dependsOn");
        let given = role.depends_on.as_deref().unwrap_or_default();
        for (d, dependency) in given.iter().enumerate() {
            let at = list.index(d);
            let name = &*dependency.role;
            if given.iter().take(d).any(|before| before.role == name) {
                errors.push(at.field("role").error(format!(
                    "the role {name:?} is named before: name each role once, with the later of the two states"
                )));
                continue;
            }
            if name == role.name {
                errors.push(
                    at.field("role")
                        .error("a role can't wait for itself: name another one, or remove it"),
                );
                continue;
            }
            let mut others = roles.iter().enumerate();
            let Some((position, awaited)) = others.find(|(_, other)| other.name == name) else {
                errors.push(at.field("role").error(format!(
                    "there is no role {name:?} in spec.roles: name one that is there"
                )));
                continue;
            };
            if dependency.state == DependencyState::Succeeded && !awaited.can_succeed() {
                errors.push(at.field("state").error(format!(
                    "the role {name:?} has restartPolicy Always, given or by default, and never succeeds: wait for Running \
                     or Ready, or give another spec.roles[{position}].restartPolicy"
                )));
            }
        }
        if let Some(circle) = circle(roles, i) {
            errors.push(list.error(format!(
                "{circle}: these roles would wait for each other for ever; remove one of the dependencies"
            )));
        }
        if given.is_empty() && role.create_policy == Some(CreatePolicy::WhenDependenciesMet) {
            errors.push(
                at.field("createPolicy")
                    .error("the role depends on nothing: add dependsOn, or leave createPolicy out"),
            );
        }
    }
}

/// The circle of roles that begins with a role and has none before it, so that each circle is told
/// once.
fn circle(roles: &[RoleSpec], start: usize) -> Option<String> {
    let position = |name: &str| roles.iter().position(|role| role.name == name);
    let awaited = |role: usize| {
        let given = roles.get(role).and_then(|role| role.depends_on.as_deref());
        given
            .unwrap_or_default()
            .iter()
            .filter_map(|dependency| position(&dependency.role))
    };
    // Breadth first, so that the shortest circle is found. Who waits for itself was told so.
    let mut came_from = vec![None; roles.len()];
    let mut queue = std::collections::VecDeque::from([start]);
    while let Some(role) = queue.pop_front() {
        for next in awaited(role).filter(|next| *next != role) {
            if next == start {
                let mut names = vec![start, role];
                let mut at = role;
                while let Some(before) = came_from.get(at).copied().flatten() {
                    names.push(before);
                    at = before;
                }
                names.reverse();
                let name = |role: &usize| roles.get(*role).map_or("", |role| &*role.name);
                return Some(names.iter().map(name).collect::<Vec<_>>().join(" waits for "));
            }
            if let Some(slot @ None) = came_from.get_mut(next)
                && next > start
            {
                *slot = Some(role);
                queue.push_back(next);
            }
        }
    }
    None
}
