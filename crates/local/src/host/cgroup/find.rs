//! Finds the control groups of this process. Pure.

use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    Cpu,
    Memory,
    Pids,
}

impl Controller {
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Pids];

    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Pids => "pids",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy for each controller.
    One,
    /// One hierarchy for all.
    Two,
}

/// A directory in which groups may be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    pub version: Version,
    /// Its controllers. In cgroup v2 they still have to be enabled.
    pub controllers: Vec<Controller>,
    /// Its path.
    pub directory: PathBuf,
}

/// The parents of the groups of a run, from `/proc/self/mountinfo` and `/proc/self/cgroup`.
///
/// In cgroup v1 that is the group of this process, so that its limits apply to the run. In v2,
/// where a group with processes can't have limited groups below it, it is the parent of that group.
pub fn parents(mounts: &str, memberships: &str) -> Vec<Parent> {
    let mut found: Vec<Parent> = Vec::new();
    let mut left = Controller::ALL.to_vec();
    let mounts: Vec<Mount<'_>> = mounts.lines().filter_map(Mount::parse).collect();
    for mount in mounts.iter().filter(|mount| mount.kind == "cgroup") {
        let has =
            |controller: &Controller| mount.options.split(',').any(|option| option == controller.name());
        let (controllers, others): (Vec<_>, Vec<_>) = left.iter().copied().partition(has);
        let own = controllers
            .first()
            .and_then(|first| membership(memberships, Some(*first)));
        if let Some(directory) = own.and_then(|own| mount.directory(own)) {
            left = others;
            found.push(Parent {
                version: Version::One,
                controllers,
                directory,
            });
        }
    }
    let second = mounts.iter().find(|mount| mount.kind == "cgroup2");
    if let (Some(mount), Some(own), false) = (second, membership(memberships, None), left.is_empty())
        && let Some(directory) = mount.directory(own.parent().unwrap_or(own))
    {
        found.push(Parent {
            version: Version::Two,
            controllers: left,
            directory,
        });
    }
    found
}

struct Mount<'a> {
    root: &'a Path,
    place: &'a Path,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (root, place) = (fields.next()?, fields.next()?);
        let mut fields = after.split(' ');
        Some(Self {
            root: Path::new(root),
            place: Path::new(place),
            kind: fields.next()?,
            options: fields.nth(1)?,
        })
    }

    /// The directory of a group, if it is in this mount.
    fn directory(&self, group: &Path) -> Option<PathBuf> {
        let inside = group.strip_prefix(self.root).ok()?;
        Some(self.place.components().chain(inside.components()).collect())
    }
}

/// The group of this process in the hierarchy of a controller, or in that of cgroup v2.
fn membership(memberships: &str, controller: Option<Controller>) -> Option<&Path> {
    memberships.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
        let is_it = match controller {
            Some(controller) => controllers.split(',').any(|name| name == controller.name()),
            None => controllers.is_empty(),
        };
        is_it.then_some(Path::new(group))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent(version: Version, controllers: &[Controller], directory: &str) -> Parent {
        Parent {
            version,
            controllers: controllers.to_vec(),
            directory: directory.into(),
        }
    }

    #[test]
    fn first_form_is_below_the_own_group() {
        let mounts = "\
            31 22 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
            32 31 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
            33 31 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
            34 31 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let memberships = "4:memory:/session/a\n3:cpu,cpuacct:/\n2:pids:/x\n0::/\n";
        assert_eq!(
            parents(mounts, memberships),
            [
                parent(Version::One, &[Controller::Cpu], "/sys/fs/cgroup/cpu,cpuacct"),
                parent(
                    Version::One,
                    &[Controller::Memory],
                    "/sys/fs/cgroup/memory/session/a"
                ),
                parent(Version::Two, &[Controller::Pids], "/sys/fs/cgroup/unified"),
            ]
        );
    }

    #[test]
    fn second_form_is_beside_the_own_group() {
        let mounts = "30 22 0:25 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let at = |memberships| parents(mounts, memberships);
        assert_eq!(
            at("0::/user.slice/app.slice/term.scope\n"),
            [parent(
                Version::Two,
                &Controller::ALL,
                "/sys/fs/cgroup/user.slice/app.slice"
            )]
        );
        assert_eq!(
            at("0::/\n"),
            [parent(Version::Two, &Controller::ALL, "/sys/fs/cgroup")]
        );
    }

    #[test]
    fn in_a_container_only_a_part_is_mounted() {
        let mounts = "33 31 0:28 /pod/a /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let at = |memberships| parents(mounts, memberships);
        assert_eq!(
            at("4:memory:/pod/a/b\n"),
            [parent(
                Version::One,
                &[Controller::Memory],
                "/sys/fs/cgroup/memory/b"
            )]
        );
        assert_eq!(at("4:memory:/elsewhere\n"), []);
        assert_eq!(at(""), []);
    }
}
