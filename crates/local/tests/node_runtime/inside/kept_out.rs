//! What containers must not get hold of.

use trainyard_local::node::runtime::User;

use super::{Node, STAY, said, wait_for};

impl Node {
    /// A container that executes this program instead of one of its own, and a process beside it
    /// that tries to change it.
    pub(super) async fn program(&self) {
        let sandbox = self.sandbox("program").await;
        let spec = self.container(&["/proc/self/exe", "run", STAY]);
        let container = sandbox.start(spec).await.unwrap();
        wait_for(&container, STAY).await;
        let script = "head -c 4 /proc/1/exe | tail -c 3; LC_ALL=C chmod 4777 /proc/1/exe 2>&1";
        let command = ["sh", "-c", script].map(ToOwned::to_owned).to_vec();
        let running = container.exec(command).await.unwrap();
        let output = running.output(b"").await.unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.starts_with("ELF"), "{said}");
        assert!(said.contains("Read-only file system"), "{said}");
        container.kill();
        container.wait().await;
    }

    /// Nothing but an input and two outputs is open in a container, whatever is open here.
    pub(super) async fn descriptors(&self) {
        assert_eq!(std::fs::read_to_string("/dev/fd/9").unwrap(), "for the run alone");
        let script = "for n in 3 4 5 6 7 8 9; do test ! -e /proc/self/fd/$n || echo has $n; done; echo ready";
        let sandbox = self.sandbox("descriptors").await;
        let spec = self.container(&["sh", "-c", &format!("{script}; sleep 1000")]);
        let container = sandbox.start(spec).await.unwrap();
        wait_for(&container, "ready").await;
        assert_eq!(said(&container), "ready\n");
        let command = ["sh", "-c", script].map(ToOwned::to_owned).to_vec();
        let output = container.exec(command).await.unwrap().output(b"").await.unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ready\n");
        container.kill();
        container.wait().await;
    }

    /// Without namespaces, too, only as much is possible as the container asks for.
    pub(super) async fn plain_rights(&self) {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let script = "id -u; id -g; id -G; grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status";
        let mut spec = self.container(&["sh", "-c", &format!("{script}; echo ready; sleep 1000")]);
        spec.working_directory = "/".into();
        spec.user = User {
            uid: Some(1234),
            gid: Some(4321),
            groups: vec![77],
            ..User::default()
        };
        let sandbox = self.sandbox("rights").await;
        let container = sandbox.start(spec).await.unwrap();
        wait_for(&container, "ready").await;
        let rights = "CapEff:\t0000000000000000\nCapBnd:\t00000000a00425fb\nNoNewPrivs:\t1\n";
        assert_eq!(said(&container), format!("1234\n4321\n4321 77\n{rights}ready\n"));
        let command = ["sh", "-c", script].map(ToOwned::to_owned).to_vec();
        let output = container.exec(command).await.unwrap().output(b"").await.unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            format!("1234\n4321\n4321\n{rights}")
        );
        container.kill();
        container.wait().await;
    }
}
