//! Containers with limits, inside of a yard.

use std::path::PathBuf;

use tokio::signal::unix::{SignalKind, signal};
use trainyard_local::node::runtime::{Container, Limits};
use trainyard_local::yard::Ability;

use super::inside::{Node, said, wait_for};

const LIMITS: Limits = Limits {
    millicpus: Some(500),
    requested_millicpus: Some(250),
    memory: Some(64 << 20),
};

impl Node {
    /// Says whether limits are enforced, after making sure that what the report says of it is true.
    pub async fn limits(&self) {
        let enforced = self.yard.report.cgroups == Ability::Yes;
        let sandbox = self.sandbox("limits").await;
        let start = async |command: &[&str], limits| {
            let mut spec = self.container(command);
            spec.limits = limits;
            sandbox.start(spec).await.unwrap()
        };
        let container = start(&["sh", "-c", "echo ready; sleep 1000"], LIMITS).await;
        wait_for(&container, "ready").await;
        let own = groups(&container);
        assert_eq!(own.len(), if enforced { 2 } else { 0 }, "{own:?}");
        if enforced {
            let read = |one: &str, two: &str| {
                let files = own.iter().flat_map(|group| [group.join(one), group.join(two)]);
                files
                    .filter_map(|file| std::fs::read_to_string(file).ok())
                    .collect::<String>()
            };
            assert!(["50000\n", "50000 100000\n"].contains(&read("cpu.cfs_quota_us", "cpu.max").as_str()));
            assert!(["256\n", "10\n"].contains(&read("cpu.shares", "cpu.weight").as_str()));
            assert_eq!(read("memory.limit_in_bytes", "memory.max"), "67108864\n");
            // What is executed in a container is under its limits by the time that anyone can talk
            // to it.
            let command = ["sh", "-c", "read line; cat /proc/self/cgroup"]
                .map(ToOwned::to_owned)
                .to_vec();
            let output = container
                .exec(command)
                .await
                .unwrap()
                .output(b"go\n")
                .await
                .unwrap();
            let inside = String::from_utf8(output.stdout).unwrap();
            let name = own[0].file_name().unwrap().to_str().unwrap();
            assert_eq!(
                inside.lines().filter(|line| line.ends_with(name)).count(),
                2,
                "{inside}"
            );
        }
        container.kill();
        let exit = container.wait().await;
        assert!(!exit.out_of_memory);
        let big = ["/usr/bin/python3", "-c", "print(len(bytearray(300 << 20)))"];
        let container = start(&big, LIMITS).await;
        let exit = container.wait().await;
        let wanted = if enforced { (137, true) } else { (0, false) };
        assert_eq!((exit.code, exit.out_of_memory), wanted, "{}", said(&container));
        // Others are not affected, and are in no group.
        let container = start(&big, Limits::default()).await;
        assert_eq!(groups(&container), Vec::<PathBuf>::new());
        assert_eq!(container.wait().await.code, 0, "{}", said(&container));
        until_gone(&own);
        println!("{}", if enforced { "enforced" } else { "not enforced" });
    }

    /// A pod with limits that goes on until this process is told to end.
    pub async fn limits_wait(&self) -> u8 {
        let mut end = signal(SignalKind::terminate()).unwrap();
        let sandbox = self.sandbox("limits").await;
        let mut spec = self.container(&["sh", "-c", "echo ready; sleep 1000"]);
        spec.limits = LIMITS;
        let container = sandbox.start(spec).await.unwrap();
        wait_for(&container, "ready").await;
        println!("running");
        end.recv().await;
        0
    }
}

/// The groups of our making that a container is in, and that hold a limit of its own.
fn groups(container: &Container) -> Vec<PathBuf> {
    let memberships =
        std::fs::read_to_string(format!("/proc/{}/cgroup", container.pid())).unwrap_or_default();
    let mut found = Vec::new();
    for line in memberships
        .lines()
        .filter(|line| line.contains("/trainyard-run-"))
    {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next().unwrap(), fields.next().unwrap());
        let tree = PathBuf::from("/sys/fs/cgroup").join(controllers);
        match controllers {
            "pids" => {}
            // One group for both.
            "" => found.extend([tree.join(&group[1..]), tree.join(&group[1..])]),
            _ => found.push(tree.join(&group[1..])),
        }
    }
    found
}

fn until_gone(groups: &[PathBuf]) {
    trainyard_eventually::eventually("all groups are gone", || {
        let left = groups.iter().find(|group| group.exists());
        left.map_or(Ok(()), |left| Err(left.display().to_string()))
    });
}
