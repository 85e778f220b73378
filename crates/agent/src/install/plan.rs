//! What is to be installed, from the operator.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use trainyard_contract::directories::mpi::names::{DISCOVERY, PROGRAM, SHELL, USABLE};
use trainyard_contract::host_list::{Format, Hosts, all, list};
use trainyard_contract::installation::Installation;

use crate::alias::OPTIONAL;

/// Why a text is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// It is no JSON of this form.
    #[error("must be JSON as `trainyard-agent install --help` shows it: {0}")]
    Json(serde_json::Error),
    /// A field of it makes no sense.
    #[error("{field} {problem}")]
    Field {
        /// Where.
        field: String,
        /// What it must be.
        problem: String,
    },
}

/// What to install. All paths are in the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where the program goes. Nothing is made outside of it.
    pub directory: PathBuf,
    /// The hosts that are listed.
    pub hosts: Vec<Hosts>,
    /// What else is to be written.
    pub files: Vec<File>,
    /// More names of the program.
    pub programs: Vec<&'static str>,
}

impl Plan {
    /// Whether the hosts may change.
    pub fn changes(&self) -> bool {
        self.hosts.iter().any(|hosts| hosts.role.is_some())
    }

    /// The directories that have the program which prints the hosts that can be used now: every one
    /// that has a list of hosts, as programs look for it beside their list. A file of the user that
    /// has such a name stays.
    pub fn discovery(&self) -> BTreeSet<&Path> {
        if !self.changes() {
            return BTreeSet::new();
        }
        let is_taken = |place: &Path| {
            let mut names = [DISCOVERY, USABLE].into_iter().map(|name| place.join(name));
            names.any(|path| self.files.iter().any(|file| file.path == path))
        };
        let of_files = self.files.iter().filter_map(|file| file.path.parent());
        let places = of_files.chain([Path::new("")]);
        places.filter(|place| !is_taken(place)).collect()
    }
}

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The path from the directory: names alone.
    pub path: PathBuf,
    /// How it lists hosts.
    pub format: Format,
    /// All that is in it at first.
    pub text: String,
}

impl FromStr for Plan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let written = Installation::read(text).map_err(PlanError::Json)?;
        let wrong = |field: String, problem: String| PlanError::Field { field, problem };
        let directory = PathBuf::from(written.directory);
        if !directory.is_absolute() || !has_only_names(&directory) {
            let problem = format!(
                "must be an absolute path without `..`; it is {}",
                directory.display()
            );
            return Err(wrong("directory".to_owned(), problem));
        }
        for (index, hosts) in written.hosts.iter().enumerate() {
            if let Some((field, problem)) = hosts.problem() {
                return Err(wrong(format!("hosts[{index}].{field}"), problem));
            }
        }
        let mut files = Vec::new();
        let hosts = all(&written.hosts);
        for (index, file) in written.files.into_iter().enumerate() {
            let path = inside(&directory, Path::new(&file.path)).map_err(|problem| {
                let problem = format!("{problem}; it is {}", file.path);
                wrong(format!("files[{index}].path"), problem)
            })?;
            files.push(File {
                path,
                format: file.format,
                text: list(&hosts, file.format),
            });
        }
        let mut programs = Vec::new();
        for (index, name) in written.programs.iter().enumerate() {
            let Some(known) = OPTIONAL.into_iter().find(|known| known == name) else {
                let problem = format!("must be one of {}; it is {name:?}", OPTIONAL.join(", "));
                return Err(wrong(format!("programs[{index}]"), problem));
            };
            programs.push(known);
        }
        Ok(Self {
            directory,
            hosts: written.hosts,
            files,
            programs,
        })
    }
}

/// The rest of a path that stays in the directory.
fn inside(directory: &Path, path: &Path) -> Result<PathBuf, String> {
    let leaves = || {
        format!(
            "must be the path of a file in {}, without `..`",
            directory.display()
        )
    };
    let rest = path.strip_prefix(directory).map_err(|_| leaves())?;
    if rest.as_os_str().is_empty() || !has_only_names(rest) {
        return Err(leaves());
    }
    if [PROGRAM, SHELL, DISCOVERY, USABLE]
        .iter()
        .chain(&OPTIONAL)
        .any(|name| rest == Path::new(name))
    {
        return Err("must be another: the program itself is there".to_owned());
    }
    // A slash at the end, which the path of a directory has, is dropped.
    Ok(rest.components().collect())
}

fn has_only_names(path: &Path) -> bool {
    path.components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn all_that_the_operator_says_is_read() {
        let plan: Plan = r#"{"directory": "/etc/mpi",
            "hosts": [{"pattern": "train-worker-{}.train.ns", "from": 0, "count": 2, "slots": 2}],
            "files": [{"path": "/etc/mpi/hostfile", "format": "OpenMPI"},
                      {"path": "/etc/mpi/files/0/hosts", "format": "MPICH"}]}"#
            .parse()
            .unwrap();
        assert_eq!(plan.directory, Path::new("/etc/mpi"));
        assert_eq!(plan.files[0].path, Path::new("hostfile"));
        assert_eq!(
            plan.files[0].text,
            "train-worker-0.train.ns slots=2\ntrain-worker-1.train.ns slots=2\n"
        );
        assert_eq!(plan.files[1].path, Path::new("files/0/hosts"));
        assert_eq!(
            plan.files[1].text,
            "train-worker-0.train.ns:2\ntrain-worker-1.train.ns:2\n"
        );
    }

    #[test]
    fn beside_every_list_that_changes_is_the_program_that_prints_who_is_there() {
        let with = |role: &str, name: &str| {
            let text = format!(
                r#"{{"directory": "/etc/mpi", "hosts": [{{"pattern": "w-{{}}", "count": 2, "slots": 1{role}}}],
                    "files": [{{"path": "/etc/mpi/hostfile", "format": "OpenMPI"}},
                              {{"path": "/etc/mpi/files/0/{name}", "format": "MPICH"}}]}}"#
            );
            let plan: Plan = text.parse().unwrap();
            let places = plan.discovery().into_iter().map(Path::to_owned);
            places.collect::<Vec<_>>()
        };
        let role = r#", "role": "worker""#;
        let root = || PathBuf::new();
        assert_eq!(with(role, "hostfile"), [root(), PathBuf::from("files/0")]);
        assert_eq!(with(role, "discover_hosts.sh"), [root()], "that is the user's");
        assert!(with("", "hostfile").is_empty(), "nobody comes or goes");
    }

    #[test]
    fn a_worker_needs_no_list() {
        let plan: Plan = r#"{"directory": "/etc/mpi"}"#.parse().unwrap();
        assert_eq!(plan.files, []);
    }

    fn with_file(path: &str) -> String {
        format!(r#"{{"directory": "/etc/mpi", "files": [{{"path": "{path}", "format": "Intel"}}]}}"#)
    }

    #[rstest]
    #[case("/etc/hostfile")]
    #[case("/etc/mpi")]
    #[case("/etc/mpi/")]
    #[case("/etc/mpi2/hostfile")]
    #[case("/etc/mpi/../hostfile")]
    #[case("/etc/mpi/a/../../../x")]
    #[case("hostfile")]
    #[case("")]
    fn a_path_that_leaves_the_directory_is_refused(#[case] path: &str) {
        let error = with_file(path).parse::<Plan>().unwrap_err().to_string();
        assert_eq!(
            error,
            format!("files[0].path must be the path of a file in /etc/mpi, without `..`; it is {path}")
        );
    }

    #[rstest]
    #[case("{", "must be JSON")]
    #[case(r#"{"directory": "/a", "hots": []}"#, "unknown field `hots`")]
    #[case(r#"{"directory": "a"}"#, "directory must be an absolute path")]
    #[case(r#"{"directory": "/a/../b"}"#, "directory must be an absolute path")]
    #[case(&with_file("/etc/mpi/kubexec.sh"), "the program itself is there")]
    #[case(&with_file("/etc/mpi/trainyard-agent/"), "the program itself is there")]
    #[case(
        r#"{"directory": "/a", "files": [{"path": "/a/b", "format": "Slurm"}]}"#,
        "unknown variant `Slurm`, expected one of `OpenMPI`, `DeepSpeed`, `MPICH`, `Intel`, `Hosts`"
    )]
    #[case(
        r#"{"directory": "/a", "hosts": [{"pattern": "a", "count": 1, "slots": 1},{"pattern": "a b", "count": 1, "slots": 1}]}"#,
        "hosts[1].pattern must be the name of a host"
    )]
    fn nonsense_is_told_by_its_place(#[case] text: &str, #[case] expected: &str) {
        let error = text.parse::<Plan>().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
