//! The settings of control groups. Pure.

use super::Limits;
use super::find::{Controller, Version};

/// The period of the CPU quota, in microseconds.
const PERIOD: u64 = 100_000;
/// The least that the kernel accepts.
const MIN_QUOTA: u64 = 1_000;
const SHARES: std::ops::RangeInclusive<u64> = 2..=262_144;

#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    /// The name of the file.
    pub file: &'static str,
    pub value: String,
    /// Whether the file may be missing: not every kernel counts swap.
    pub may_be_missing: bool,
}

impl Setting {
    fn new(file: &'static str, value: impl Into<String>) -> Self {
        Self {
            file,
            value: value.into(),
            may_be_missing: false,
        }
    }

    fn where_there_is(file: &'static str, value: impl Into<String>) -> Self {
        Self {
            may_be_missing: true,
            ..Self::new(file, value)
        }
    }
}

/// The settings of a container's group, in the order in which they are written.
pub fn of_container(version: Version, controller: Controller, limits: Limits) -> Vec<Setting> {
    match controller {
        Controller::Cpu => processors(version, limits),
        Controller::Memory => limits
            .memory
            .map_or_else(Vec::new, |bytes| memory(version, bytes)),
        // Kubernetes does not limit the processes of a container.
        Controller::Pids => Vec::new(),
    }
}

fn processors(version: Version, limits: Limits) -> Vec<Setting> {
    let quota = limits
        .millicpus
        .map(|milli| (milli * PERIOD / 1000).max(MIN_QUOTA));
    let shares = limits
        .requested_millicpus
        .map(|milli| (milli * 1024 / 1000).clamp(*SHARES.start(), *SHARES.end()));
    let quota = quota.map(|quota| match version {
        Version::One => Setting::new("cpu.cfs_quota_us", quota.to_string()),
        Version::Two => Setting::new("cpu.max", format!("{quota} {PERIOD}")),
    });
    let shares = shares.map(|shares| match version {
        Version::One => Setting::new("cpu.shares", shares.to_string()),
        // Maps the range of v1 shares to that of v2 weights, as Kubernetes does.
        Version::Two => Setting::new(
            "cpu.weight",
            (1 + (shares - SHARES.start()) * 9_999 / (SHARES.end() - SHARES.start())).to_string(),
        ),
    });
    quota.into_iter().chain(shares).collect()
}

/// Memory without swap, as on a node.
fn memory(version: Version, bytes: u64) -> Vec<Setting> {
    match version {
        Version::One => vec![
            Setting::new("memory.limit_in_bytes", bytes.to_string()),
            Setting::where_there_is("memory.memsw.limit_in_bytes", bytes.to_string()),
        ],
        Version::Two => vec![
            Setting::new("memory.max", bytes.to_string()),
            Setting::where_there_is("memory.swap.max", "0"),
            Setting::where_there_is("memory.oom.group", "1"),
        ],
    }
}

/// The limit of processes for all containers of a run, from that of the machine: a fork bomb must
/// leave some for the user to stop it.
pub fn most_processes(of_machine: u64) -> Setting {
    Setting::new("pids.max", (of_machine / 2).max(1).to_string())
}

/// The file that counts OOM kills.
pub fn oom_kills_file(version: Version) -> &'static str {
    match version {
        Version::One => "memory.oom_control",
        Version::Two => "memory.events",
    }
}

/// The number of OOM kills.
pub fn oom_kills(content: &str) -> u64 {
    let count = content.lines().find_map(|line| line.strip_prefix("oom_kill "));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(version: Version, limits: Limits) -> Vec<String> {
        Controller::ALL
            .into_iter()
            .flat_map(|controller| of_container(version, controller, limits))
            .map(|setting| format!("{}={}", setting.file, setting.value))
            .collect()
    }

    #[test]
    fn limits_are_written_as_the_kernel_wants_them() {
        let limits = Limits {
            millicpus: Some(1500),
            requested_millicpus: Some(500),
            memory: Some(64 << 20),
        };
        assert_eq!(
            written(Version::One, limits),
            [
                "cpu.cfs_quota_us=150000",
                "cpu.shares=512",
                "memory.limit_in_bytes=67108864",
                "memory.memsw.limit_in_bytes=67108864",
            ]
        );
        assert_eq!(
            written(Version::Two, limits),
            [
                "cpu.max=150000 100000",
                "cpu.weight=20",
                "memory.max=67108864",
                "memory.swap.max=0",
                "memory.oom.group=1",
            ]
        );
        assert_eq!(written(Version::Two, Limits::default()), [""; 0]);
    }

    #[test]
    fn extremes_are_taken_by_the_kernel() {
        let of = |milli| Limits {
            millicpus: Some(milli),
            requested_millicpus: Some(milli),
            memory: None,
        };
        assert_eq!(
            written(Version::One, of(1)),
            ["cpu.cfs_quota_us=1000", "cpu.shares=2"]
        );
        assert_eq!(
            written(Version::Two, of(1)),
            ["cpu.max=1000 100000", "cpu.weight=1"]
        );
        assert_eq!(
            written(Version::Two, of(1_000_000)),
            ["cpu.max=100000000 100000", "cpu.weight=10000"]
        );
    }

    #[test]
    fn deaths_are_counted_by_the_kernel() {
        assert_eq!(oom_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"), 2);
        assert_eq!(
            oom_kills("low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\noom_group_kill 1\n"),
            1
        );
        assert_eq!(oom_kills(""), 0);
    }
}
