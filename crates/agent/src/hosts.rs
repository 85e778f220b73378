//! `trainyard-agent hosts`: keeps lists of hosts current while the number of pods of a role
//! changes.
//!
//! It runs beside the programs that read them. While the observer does not answer, the lists stay
//! as they are.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use trainyard_contract::directories::mpi::names::USABLE;
use trainyard_contract::host_list::{Format, Host, list};
use trainyard_contract::observer::{self, JobHosts, RoleHosts};
use trainyard_contract::{environment, modes};

use crate::backoff::Backoff;
use crate::install::place::write;
use crate::install::{PlaceError, Plan};
use crate::mode::{Mode, PROGRAM, USAGE_ERROR, report_misuse};
use crate::observer::{ObserverClient, ObserverError};
use crate::settings::{self, Environment};
use crate::signals::exit_with_success_on_signal;

pub(crate) const MODE: Mode = Mode {
    name: modes::HOSTS,
    summary: "Keep lists of hosts current while pods come and go",
    help: HELP,
    run: main,
};

const HELP: &str = "\
Keeps the lists that `trainyard-agent install` has made current while the number of pods of a role changes.

Usage: trainyard-agent hosts

Environment:
  TRAINYARD_HOSTS       What TRAINYARD_INSTALL was; hosts that change have the role whose pods they are
  TRAINYARD_OBSERVER, TRAINYARD_AUTHORITY, TRAINYARD_NAMESPACE, TRAINYARD_JOB, TRAINYARD_TOKEN_FILE
                        As for `trainyard-agent wait`

A list has a host from when its pod is first ready until it is told to leave, or its role does not have it any more,
also while a pod that ended is being replaced. What discover_hosts.sh prints are the hosts whose pods are ready now;
those that come at about the same time are printed together.

Exit codes: 0 ended by a signal, 1 a list can't be written, 2 a variable is missing or makes no sense.
";

const VARIABLE: &str = environment::HOSTS;
const FAILED: u8 = 1;

/// How long hosts that can be used are kept back for others that come with them. horovodrun takes
/// no notice of a host that it finds while its processes meet anew because of the one before.
const BATCH_TIMEOUT: Duration = Duration::from_secs(10);

/// The hosts of a role that programs may use, by number.
struct Usable {
    given_out: BTreeSet<u32>,
    kept_back: BTreeSet<u32>,
    /// When the last one of those that are kept back has come.
    since: Instant,
}

impl Usable {
    /// Updates what is given out: those that are not ready go at once, and those that come do so
    /// together.
    fn update(&mut self, ready: &BTreeSet<u32>, members: &BTreeSet<u32>, now: Instant) {
        self.given_out.retain(|number| ready.contains(number));
        let come: BTreeSet<u32> = ready.difference(&self.given_out).copied().collect();
        if come != self.kept_back {
            (self.kept_back, self.since) = (come, now);
        }
        let is_over = now.duration_since(self.since) >= BATCH_TIMEOUT;
        // Where none is given out, no processes run that could miss the next ones.
        if self.given_out.is_empty() || ready == members || is_over {
            self.given_out.append(&mut self.kept_back);
        }
    }
}

/// Lists of hosts as they are now.
pub struct Lists {
    plan: Plan,
    /// The numbers that are listed, by role.
    listed: BTreeMap<String, BTreeSet<u32>>,
    usable: BTreeMap<String, Usable>,
    written: BTreeMap<PathBuf, String>,
}

impl Lists {
    /// The lists as they were made.
    pub fn new(plan: Plan) -> Self {
        let mut listed: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        for hosts in &plan.hosts {
            if let Some(role) = &hosts.role {
                listed.entry(role.clone()).or_default().extend(hosts.numbers());
            }
        }
        Self {
            listed,
            usable: BTreeMap::new(),
            plan,
            written: BTreeMap::new(),
        }
    }

    /// Updates the lists. Returns the hosts that are listed, and those that can be used.
    fn update(&mut self, roles: &[RoleHosts], now: Instant) -> (Vec<Host>, Vec<Host>) {
        let (mut all, mut usable) = (Vec::new(), Vec::new());
        // A role with gaps has several entries, and is listed in the place of the first.
        let mut done: BTreeSet<&str> = BTreeSet::new();
        for hosts in &self.plan.hosts {
            let reported = hosts
                .role
                .as_ref()
                .and_then(|role| roles.iter().find(|reported| reported.name == *role));
            let listed = hosts.role.as_ref().and_then(|role| self.listed.get_mut(role));
            if let (Some(reported), Some(listed)) = (reported, listed) {
                if !done.insert(&reported.name) {
                    continue;
                }
                let ready: BTreeSet<u32> = reported.ready().collect();
                let members = reported.members();
                listed.retain(|number| members.contains(number));
                listed.extend(&ready);
                all.extend(listed.iter().map(|number| hosts.host(*number)));
                let given_out = self
                    .usable
                    .entry(reported.name.clone())
                    .or_insert_with(|| Usable {
                        given_out: ready.clone(),
                        kept_back: BTreeSet::new(),
                        since: now,
                    });
                given_out.update(&ready, &members, now);
                let numbers = given_out.given_out.iter();
                usable.extend(numbers.map(|number| hosts.host(*number)));
            } else {
                let fixed: Vec<Host> = hosts.numbers().map(|number| hosts.host(number)).collect();
                all.extend(fixed.iter().cloned());
                usable.extend(fixed);
            }
        }
        (all, usable)
    }

    /// Writes the lists that have changed.
    pub fn follow(&mut self, roles: &[RoleHosts], now: Instant) -> Result<(), PlaceError> {
        if roles.is_empty() {
            // The job is not accepted and has no pods.
            return Ok(());
        }
        let (all, usable) = self.update(roles, now);
        let files = self.plan.files.iter();
        let mut texts: Vec<_> = files
            .map(|file| (file.path.clone(), list(&all, file.format)))
            .collect();
        let usable = list(&usable, Format::MPICH);
        let places = self.plan.discovery().into_iter();
        texts.extend(places.map(|place| (place.join(USABLE), usable.clone())));
        for (path, text) in texts {
            if self.written.get(&path) != Some(&text) {
                write(&self.plan.directory, &path, &text)?;
                self.written.insert(path, text);
            }
        }
        Ok(())
    }
}

/// Why listening on one connection ends.
enum ListenError {
    /// The observer failed. It is asked again.
    Observer(ObserverError),
    /// A list can't be written.
    List(PlaceError),
}

/// Listens on one connection until something goes wrong.
fn listen(observer: &ObserverClient, path: &str, lists: &mut Lists, heard: &mut bool) -> ListenError {
    let mut answer = match observer.ask(path) {
        Ok(answer) => answer,
        Err(failure) => return ListenError::Observer(failure),
    };
    let mut last = JobHosts { roles: Vec::new() };
    loop {
        let line = match answer.next_line() {
            Ok(line) => line,
            Err(failure) => return ListenError::Observer(failure),
        };
        *heard = true;
        // An empty line is a heartbeat. Meanwhile hosts may have been kept back long enough.
        if !line.trim_ascii().is_empty() {
            last = match serde_json::from_slice(&line) {
                Ok(told) => told,
                Err(error) => return ListenError::Observer(answer.nonsense(error.to_string())),
            };
        }
        if let Err(error) = lists.follow(&last.roles, Instant::now()) {
            return ListenError::List(error);
        }
    }
}

/// Follows the observer for as long as lists can be written.
fn run(observer: &ObserverClient, path: &str, mut lists: Lists, err: &mut dyn Write) -> PlaceError {
    let mut backoff = Backoff::default();
    let mut logged = String::new();
    loop {
        let mut heard = false;
        let failure = match listen(observer, path, &mut lists, &mut heard) {
            ListenError::Observer(failure) => failure,
            ListenError::List(error) => return error,
        };
        if heard {
            backoff.reset();
        }
        let trouble = failure.to_string();
        if trouble != logged {
            let _ = writeln!(
                err,
                "{PROGRAM}: {trouble}; trying again, and the lists stay as they are"
            );
            logged = trouble;
        }
        thread::sleep(backoff.pause(failure.max_pause(), fastrand::f64()));
    }
}

/// Reads the settings: the observer, the path and the lists.
fn read(environment: Environment<'_>) -> Result<(ObserverClient, String, Lists), String> {
    let text = |error: settings::SettingError| error.to_string();
    let observer = settings::observer(environment).map_err(text)?;
    let name = |variable| settings::object_name(environment, variable).map_err(text);
    let (namespace, job) = (name(environment::NAMESPACE)?, name(environment::JOB)?);
    let plan = settings::required(environment, VARIABLE).map_err(text)?;
    let plan: Plan = plan.parse().map_err(|error| format!("{VARIABLE}: {error}"))?;
    Ok((observer, observer::hosts(&namespace, &job), Lists::new(plan)))
}

fn main(args: &[OsString], _out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    if let Some(word) = args.first() {
        let word = word.to_string_lossy();
        return report_misuse(
            err,
            &format!("`hosts` takes no words after it, and there is {word:?}"),
        );
    }
    if let Err(error) = exit_with_success_on_signal() {
        let _ = writeln!(err, "{PROGRAM}: {error}");
        return FAILED;
    }
    match read(&|name| std::env::var_os(name)) {
        Ok((observer, path, lists)) => {
            let error = run(&observer, &path, lists, err);
            let _ = writeln!(err, "{PROGRAM}: {error}");
            FAILED
        }
        Err(error) => {
            let _ = writeln!(err, "{PROGRAM}: {error}");
            USAGE_ERROR
        }
    }
}

/// Prints the hosts that can be used now: the list beside the program that runs.
pub fn print(out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let printed = std::env::current_exe().and_then(|program| {
        let file = program.parent().unwrap_or(Path::new("/")).join(USABLE);
        let text = std::fs::read(&file).map_err(|error| {
            io::Error::new(error.kind(), format!("can't read {}: {error}", file.display()))
        })?;
        out.write_all(&text).and_then(|()| out.flush())
    });
    match printed {
        Ok(()) => 0,
        Err(error) => {
            let _ = writeln!(err, "{PROGRAM}: {error}");
            FAILED
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(replicas: u32, ready: &str) -> Vec<RoleHosts> {
        vec![RoleHosts {
            name: "worker".to_owned(),
            replicas,
            members: None,
            ready: ready.to_owned(),
        }]
    }

    /// Some of the first numbers are of pods that have left.
    fn with_gaps(members: &str, replicas: u32, ready: &str) -> Vec<RoleHosts> {
        let mut roles = role(replicas, ready);
        roles[0].members = Some(members.to_owned());
        roles
    }

    fn lists(directory: &Path) -> Lists {
        let directory = directory.display();
        let plan = format!(
            r#"{{"directory": "{directory}",
                 "hosts": [{{"pattern": "l", "count": 1, "slots": 1}},
                           {{"pattern": "w-{{}}", "count": 2, "slots": 4, "role": "worker"}}],
                 "files": [{{"path": "{directory}/hostfile", "format": "OpenMPI"}},
                           {{"path": "{directory}/files/0/hosts", "format": "MPICH"}}]}}"#
        );
        Lists::new(plan.parse().unwrap())
    }

    #[test]
    fn hosts_come_when_they_are_ready_and_go_with_their_role() {
        let directory = tempfile::tempdir().unwrap();
        let mut lists = lists(directory.path());
        let mut see = |roles: &[RoleHosts]| {
            lists.follow(roles, Instant::now()).unwrap();
            let read = |path: &str| std::fs::read_to_string(directory.path().join(path)).unwrap_or_default();
            let short = |path: &str| read(path).replace(" slots=", ":").replace('\n', " ");
            assert_eq!(read(USABLE), read("files/0/discover_hosts"), "beside every list");
            assert_eq!(short("hostfile"), short("files/0/hosts"));
            (short("hostfile"), short(USABLE))
        };
        let is = |all: &str, usable: &str| (all.to_owned(), usable.to_owned());
        assert_eq!(see(&[]), is("", ""), "nothing is known, nothing is touched");
        assert_eq!(see(&role(2, "0-1")), is("l:1 w-0:4 w-1:4 ", "l:1 w-0:4 w-1:4 "));
        assert_eq!(
            see(&role(3, "0-1")),
            is("l:1 w-0:4 w-1:4 ", "l:1 w-0:4 w-1:4 "),
            "not yet"
        );
        assert_eq!(
            see(&role(3, "0-2")),
            is("l:1 w-0:4 w-1:4 w-2:4 ", "l:1 w-0:4 w-1:4 w-2:4 ")
        );
        // One that is replaced is still one of the job.
        assert_eq!(
            see(&role(3, "0,2")),
            is("l:1 w-0:4 w-1:4 w-2:4 ", "l:1 w-0:4 w-2:4 ")
        );
        assert_eq!(
            see(&role(1, "0,2")),
            is("l:1 w-0:4 ", "l:1 w-0:4 "),
            "at once, whatever still runs"
        );
        assert_eq!(
            see(&role(3, "0")),
            is("l:1 w-0:4 ", "l:1 w-0:4 "),
            "it must be ready again"
        );
        see(&role(3, "0-2"));
        assert_eq!(
            see(&with_gaps("0,2", 3, "0-2")),
            is("l:1 w-0:4 w-2:4 ", "l:1 w-0:4 w-2:4 "),
            "one in the middle has left"
        );
    }

    #[test]
    fn hosts_that_come_one_after_the_other_are_given_out_together() {
        let directory = tempfile::tempdir().unwrap();
        let mut lists = lists(directory.path());
        let begin = Instant::now();
        let mut see = |seconds: u64, roles: &[RoleHosts]| {
            lists.follow(roles, begin + Duration::from_secs(seconds)).unwrap();
            std::fs::read_to_string(directory.path().join(USABLE))
                .unwrap()
                .replace('\n', " ")
        };
        assert_eq!(see(0, &role(2, "0-1")), "l:1 w-0:4 w-1:4 ");
        assert_eq!(see(1, &role(4, "0-1,3")), "l:1 w-0:4 w-1:4 ", "one more comes");
        assert_eq!(see(3, &role(4, "0-3")), "l:1 w-0:4 w-1:4 w-2:4 w-3:4 ");
        assert_eq!(see(4, &role(4, "0,2-3")), "l:1 w-0:4 w-2:4 w-3:4 ", "at once");
        // One of the next two has no node.
        assert_eq!(see(5, &role(6, "0,2-4")), "l:1 w-0:4 w-2:4 w-3:4 ");
        assert_eq!(see(9, &role(6, "0-4")), "l:1 w-0:4 w-2:4 w-3:4 ");
        assert_eq!(see(18, &role(6, "0-4")), "l:1 w-0:4 w-2:4 w-3:4 ");
        assert_eq!(see(19, &role(6, "0-4")), "l:1 w-0:4 w-1:4 w-2:4 w-3:4 w-4:4 ");
        assert_eq!(
            see(20, &role(6, "0-5")),
            "l:1 w-0:4 w-1:4 w-2:4 w-3:4 w-4:4 w-5:4 "
        );
    }

    #[test]
    fn a_role_with_gaps_is_listed_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().display();
        let worker = |from| {
            format!(r#"{{"pattern": "w-{{}}", "from": {from}, "count": 1, "slots": 4, "role": "worker"}}"#)
        };
        let plan = format!(
            r#"{{"directory": "{path}", "hosts": [{}, {}],
                 "files": [{{"path": "{path}/hostfile", "format": "MPICH"}}]}}"#,
            worker(0),
            worker(2)
        );
        let mut lists = Lists::new(plan.parse().unwrap());
        let mut see = |roles: &[RoleHosts]| {
            lists.follow(roles, Instant::now()).unwrap();
            std::fs::read_to_string(directory.path().join("hostfile")).unwrap()
        };
        assert_eq!(see(&with_gaps("0,2", 3, "")), "w-0:4\nw-2:4\n", "as it was made");
        assert_eq!(see(&role(3, "0-2")), "w-0:4\nw-1:4\nw-2:4\n");
    }

    /// A bug of et-operator, which wrote over what launchers were reading.
    #[test]
    fn who_reads_a_list_reads_all_of_it() {
        use std::io::Read;
        let directory = tempfile::tempdir().unwrap();
        let mut lists = lists(directory.path());
        lists.follow(&role(3, "0-2"), Instant::now()).unwrap();
        let mut reader = std::fs::File::open(directory.path().join("hostfile")).unwrap();
        lists.follow(&role(1, "0"), Instant::now()).unwrap();
        let mut seen = String::new();
        reader.read_to_string(&mut seen).unwrap();
        assert_eq!(seen, "l slots=1\nw-0 slots=4\nw-1 slots=4\nw-2 slots=4\n");
    }

    /// Those who have left by name leave a gap, which those after them do not close.
    #[test]
    fn those_that_have_left_are_not_listed_where_numbers_have_gaps() {
        let directory = tempfile::tempdir().unwrap();
        let mut lists = lists(directory.path());
        let mut see = |members: &str, ready: &str| {
            let mut roles = role(4, ready);
            roles[0].members = Some(members.to_owned());
            lists.follow(&roles, Instant::now()).unwrap();
            std::fs::read_to_string(directory.path().join("files/0/hosts")).unwrap()
        };
        assert_eq!(see("0-3", "0-3"), "l:1\nw-0:4\nw-1:4\nw-2:4\nw-3:4\n");
        assert_eq!(see("0,2-3", "0,2-3"), "l:1\nw-0:4\nw-2:4\nw-3:4\n");
        // A launcher that is made meanwhile begins with the gap.
        let directory = directory.path().display();
        let plan = format!(
            r#"{{"directory": "{directory}",
                 "hosts": [{{"pattern": "w-{{}}", "count": 1, "slots": 1, "role": "worker"}},
                           {{"pattern": "w-{{}}", "from": 2, "count": 2, "slots": 1, "role": "worker"}}],
                 "files": [{{"path": "{directory}/again", "format": "MPICH"}}]}}"#
        );
        let mut lists = Lists::new(plan.parse().unwrap());
        let mut roles = role(4, "0");
        roles[0].members = Some("0,2-3".to_owned());
        lists.follow(&roles, Instant::now()).unwrap();
        let written = std::fs::read_to_string(format!("{directory}/again")).unwrap();
        assert_eq!(written, "w-0:1\nw-2:1\nw-3:1\n");
    }

    #[test]
    fn what_is_the_same_is_not_written_again() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir().unwrap();
        let mut lists = lists(directory.path());
        let mut file = |roles: &[RoleHosts]| {
            lists.follow(roles, Instant::now()).unwrap();
            std::fs::metadata(directory.path().join("hostfile"))
                .unwrap()
                .ino()
        };
        let first = file(&role(2, "0-1"));
        assert_eq!(file(&role(2, "0")), first);
        assert_ne!(file(&role(1, "0")), first);
    }

    #[test]
    fn numbers_are_read_and_bounded() {
        let numbers = |text: &str, replicas| role(replicas, text)[0].ready().collect::<Vec<u32>>();
        assert_eq!(numbers("0-2,5, x,7-9999999999,8", 9), [0, 1, 2, 5, 8]);
        assert_eq!(numbers("0-4294967295", 3), [0, 1, 2]);
        assert_eq!(numbers("", 3), [0; 0]);
    }
}
