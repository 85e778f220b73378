//! Descendants of this process.

use std::collections::HashSet;
use std::fs;

use rustix::process::{Pid, getpid};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: Pid,
    /// The id of its process group.
    pub group: Pid,
    parent: Option<Pid>,
}

/// All running descendants of this process, without zombies.
///
/// Empty if /proc can't be read.
pub fn descendants() -> Vec<Process> {
    below(getpid(), all())
}

/// All running processes that this one sees, but for itself.
pub fn others() -> Vec<Process> {
    let myself = getpid();
    let mut others = all();
    others.retain(|process| process.pid != myself);
    others
}

fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    // Processes may end meanwhile.
    let all = numbers.filter_map(|number| parse(&fs::read_to_string(format!("/proc/{number}/stat")).ok()?));
    all.collect()
}

fn below(root: Pid, mut others: Vec<Process>) -> Vec<Process> {
    let mut found = Vec::new();
    let mut parents = HashSet::from([root]);
    loop {
        let is_child = |process: &Process| process.parent.is_some_and(|parent| parents.contains(&parent));
        let (children, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(is_child);
        if children.is_empty() {
            return found;
        }
        parents = children.iter().map(|child| child.pid).collect();
        found.extend(children);
        others = rest;
    }
}

/// A line of the form `pid (name) state parent group ...`. The name may hold anything, also
/// parentheses.
fn parse(stat: &str) -> Option<Process> {
    let number = |text: &str| text.parse().ok().and_then(Pid::from_raw);
    let (pid, rest) = stat.split_once(' ')?;
    let mut fields = rest.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let process = Process {
        pid: number(pid)?,
        parent: number(fields.next()?),
        group: number(fields.next()?)?,
    };
    (!matches!(state, "Z" | "X")).then_some(process)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn process(pid: i32, parent: i32) -> Process {
        Process {
            pid: Pid::from_raw(pid).unwrap(),
            group: Pid::from_raw(7).unwrap(),
            parent: Pid::from_raw(parent),
        }
    }

    #[rstest]
    #[case("12 (sh) S 3 7 3 0 -1", Some(process(12, 3)))]
    #[case("12 (a) (b) R 9) T 3 7 3", Some(process(12, 3)))]
    #[case("1 (init) S 0 7 1", Some(process(1, 0)))]
    #[case("12 (sh) Z 3 7 3", None)]
    #[case("12 (kthreadd) S 0 0 0", None)]
    #[case("12 (sh", None)]
    #[case("", None)]
    fn lines_are_read(#[case] line: &str, #[case] expected: Option<Process>) {
        assert_eq!(parse(line), expected);
    }

    #[test]
    fn children_of_children_are_found_in_any_order() {
        let all = [
            process(5, 4),
            process(4, 2),
            process(3, 1),
            process(6, 2),
            process(2, 1),
        ];
        let found = below(Pid::from_raw(2).unwrap(), all.to_vec());
        let pids: Vec<i32> = found
            .iter()
            .map(|process| process.pid.as_raw_nonzero().get())
            .collect();
        assert_eq!(pids, [4, 6, 5]);
    }
}
