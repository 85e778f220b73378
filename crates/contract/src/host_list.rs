//! Lists of hosts, as the launchers of MPI and its relatives read them.

use std::fmt::Write;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// How a line of a list looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// `host slots=2`
    OpenMPI,
    /// `host slots=2`
    DeepSpeed,
    /// `host:2`
    MPICH,
    /// `host:2`
    Intel,
    /// `host`, on two lines
    Hosts,
}

/// Hosts whose names differ by a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hosts {
    /// The name, with `{}` where the number is.
    pub pattern: String,
    /// The number of the first one.
    #[serde(default)]
    pub from: u32,
    /// How many there are.
    pub count: u32,
    /// How many processes each of them runs.
    pub slots: u32,
    /// The role whose pods they are, where their number may change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

/// One host of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// How many processes it runs.
    pub slots: u32,
}

const NUMBER: &str = "{}";

impl Hosts {
    /// What is wrong with them, by the name of the field; agents refuse such hosts.
    pub fn problem(&self) -> Option<(&'static str, String)> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '[' | ']');
        let name = self.pattern.replace(NUMBER, "0");
        if name.is_empty() || !name.chars().all(is_allowed) {
            let problem = format!(
                "must be the name of a host, with {NUMBER} in place of its number; it is {:?}",
                self.pattern
            );
            Some(("pattern", problem))
        } else if self.count > 1 && !self.pattern.contains(NUMBER) {
            let problem = format!(
                "must have {NUMBER} in place of the number of the host, or all {} have the same name; it is {:?}",
                self.count, self.pattern
            );
            Some(("pattern", problem))
        } else if self.from.checked_add(self.count).is_none() {
            Some((
                "count",
                format!("must be less; it is {} from {}", self.count, self.from),
            ))
        } else if self.slots == 0 {
            Some(("slots", "must be at least 1".to_owned()))
        } else {
            None
        }
    }

    /// The numbers that they have at first.
    pub fn numbers(&self) -> Range<u32> {
        self.from..self.from.saturating_add(self.count)
    }

    /// The host of a number.
    pub fn host(&self, number: u32) -> Host {
        Host {
            name: self.pattern.replace(NUMBER, &number.to_string()),
            slots: self.slots,
        }
    }
}

/// The whole list.
pub fn list(hosts: &[Host], format: Format) -> String {
    let mut text = String::new();
    for Host { name, slots } in hosts {
        // Writing to a String does not fail.
        let _ = match format {
            Format::OpenMPI | Format::DeepSpeed => writeln!(text, "{name} slots={slots}"),
            Format::MPICH | Format::Intel => writeln!(text, "{name}:{slots}"),
            Format::Hosts => (0..*slots).try_for_each(|_| writeln!(text, "{name}")),
        };
    }
    text
}

/// All hosts that there are at first.
pub fn all(hosts: &[Hosts]) -> Vec<Host> {
    let each = |some: &Hosts| some.numbers().map(|number| some.host(number)).collect::<Vec<_>>();
    hosts.iter().flat_map(each).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn hosts(pattern: &str, from: u32, count: u32, slots: u32) -> Hosts {
        Hosts {
            pattern: pattern.to_owned(),
            from,
            count,
            slots,
            role: None,
        }
    }

    #[rstest]
    #[case(Format::OpenMPI, "l slots=1\nw-9.x slots=2\nw-10.x slots=2\n")]
    #[case(Format::DeepSpeed, "l slots=1\nw-9.x slots=2\nw-10.x slots=2\n")]
    #[case(Format::MPICH, "l:1\nw-9.x:2\nw-10.x:2\n")]
    #[case(Format::Intel, "l:1\nw-9.x:2\nw-10.x:2\n")]
    #[case(Format::Hosts, "l\nw-9.x\nw-9.x\nw-10.x\nw-10.x\n")]
    fn lists_have_all_hosts_in_order(#[case] format: Format, #[case] expected: &str) {
        let all = [
            hosts("l", 0, 1, 1),
            hosts("none-{}", 3, 0, 1),
            hosts("w-{}.x", 9, 2, 2),
        ];
        assert_eq!(list(&super::all(&all), format), expected);
        assert!(all.iter().all(|hosts| hosts.problem().is_none()));
    }

    #[rstest]
    #[case(hosts("", 0, 1, 1), "pattern")]
    #[case(hosts("a b", 0, 1, 1), "pattern")]
    #[case(hosts("a\nb", 0, 1, 1), "pattern")]
    #[case(hosts("a{0}", 0, 1, 1), "pattern")]
    #[case(hosts("same", 0, 2, 1), "pattern")]
    #[case(hosts("w-{}", u32::MAX, 1, 1), "count")]
    #[case(hosts("w-{}", 0, 1, 0), "slots")]
    fn what_makes_no_list_is_refused(#[case] hosts: Hosts, #[case] field: &str) {
        assert_eq!(hosts.problem().unwrap().0, field);
    }
}
