//! What the agent is to put into a pod, as JSON in a variable.

use serde::{Deserialize, Serialize};

use crate::host_list::{Format, Hosts};

/// The agent makes a file under a name that begins with a dot and ends like this, and then gives it
/// its own.
pub const UNFINISHED: &str = ".trainyard-new";

/// What to put where. Agents refuse fields that they don't know, here and below.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Installation {
    /// Where everything goes: nothing is made outside of it.
    pub directory: String,
    /// The hosts that are listed, in order.
    #[serde(default)]
    pub hosts: Vec<Hosts>,
    /// The files that list them.
    #[serde(default)]
    pub files: Vec<ListFile>,
    /// More names of the agent in the directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<String>,
}

/// A file that lists hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListFile {
    /// How a line of it looks.
    pub format: Format,
    /// Its path, within the directory.
    pub path: String,
}

impl Installation {
    /// Writes it as one line.
    pub fn write(&self) -> String {
        // Text and numbers can always be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads it. Whether its values make sense is for the agent to say.
    pub fn read(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(None, &[])]
    #[case(Some("worker"), &["pdsh", "ssh"])]
    fn what_is_written_is_read(#[case] role: Option<&str>, #[case] programs: &[&str]) {
        let format = [
            Format::OpenMPI,
            Format::DeepSpeed,
            Format::MPICH,
            Format::Intel,
            Format::Hosts,
        ];
        let installation = Installation {
            directory: "/etc/mpi".to_owned(),
            hosts: vec![Hosts {
                pattern: "w-{}.x".to_owned(),
                from: 3,
                count: 2,
                slots: 4,
                role: role.map(str::to_owned),
            }],
            files: format
                .map(|format| ListFile {
                    format,
                    path: format!("/etc/mpi/{format:?}"),
                })
                .into(),
            programs: programs.iter().map(|name| (*name).to_owned()).collect(),
        };
        let text = installation.write();
        assert_eq!(Installation::read(&text).unwrap(), installation, "{text}");
        assert_eq!(
            text.contains("programs"),
            !programs.is_empty(),
            "an old agent need not know it"
        );
        assert_eq!(
            text.contains("role"),
            role.is_some(),
            "an old agent need not know it"
        );
    }
}
