//! What a container sees as its files.

use std::path::{Path, PathBuf};

use trainyard_local::node::runtime::{Mount, Root};
use trainyard_local::yard::Isolation;

use super::{Node, said};

impl Node {
    /// Nothing can be written to but what is mounted, even over a part of the machine's files.
    pub async fn read_only(&self) {
        let volume = std::env::current_dir().unwrap().join("volume");
        std::fs::create_dir(&volume).unwrap();
        let script = "for place in / /etc /usr /tmp /var /root; do touch $place/x 2> /dev/null && echo $place; done; \
                      touch inside /opt/x /dev/shm/x && echo done";
        let mut spec = self.container(&["sh", "-c", script]);
        spec.read_only_root = true;
        spec.mounts.push(Mount {
            source: volume,
            target: "/opt".into(),
            ..Mount::default()
        });
        let sandbox = self.sandbox("read-only").await;
        let container = sandbox.start(spec).await.unwrap();
        container.wait().await;
        assert_eq!(said(&container), "done\n");
    }

    pub(super) async fn files(&self) {
        let (exit, output) = self
            .script("cat input && echo kept > output && echo x > /trainyard-wrote-this && echo x > ../elsewhere && cat /trainyard-wrote-this")
            .await;
        assert_eq!((exit.code, output.as_str()), (0, "from the machinex\n"));
        // Each container has files of its own, and its own idea of what they are.
        let check =
            "test ! -e /trainyard-wrote-this && test ! -e ../elsewhere && test -x /bin/sh && echo fine";
        assert_eq!(self.says(check).await, "fine\n");
        // Below what belongs to others an ordinary user can't write, as on the machine itself.
        let deep = if self.yard.isolation == Isolation::Root {
            "/var/lib/x/y"
        } else {
            "/var/x/y"
        };
        let script =
            format!("mkdir -p {deep} /opt/z && rm /etc/passwd && ls /etc/passwd 2>/dev/null || echo gone");
        assert_eq!(self.says(&script).await, "gone\n");
        assert!(Path::new("/etc/passwd").exists());
        assert_eq!(
            self.says("echo $$; for p in /proc/[0-9]*; do basename $p; done")
                .await,
            "1\n1\n"
        );
        assert_eq!(
            self.says("pwd").await.trim(),
            std::env::current_dir().unwrap().to_str().unwrap()
        );
        let devices =
            "echo x > /dev/null && head -c 2 /dev/zero | wc -c && test -w /dev/shm && : > /dev/shm/x";
        assert_eq!(self.says(devices).await, "2\n");
        assert_ne!(
            self.script("echo 1 > /proc/sys/kernel/panic || echo x > /sys/x")
                .await
                .0
                .code,
            0
        );
        let permissive = "awk '$3 == \"overlay\" && ($4 !~ /nodev/ || $4 !~ /nosuid/)' /proc/mounts";
        assert_eq!(self.says(permissive).await, "");
        // What is kept of other pods.
        let others = format!("ls -A {}", self.state.display());
        assert_eq!(self.says(&others).await, "");
        self.mounts().await;
    }

    async fn mounts(&self) {
        let volume = self.state.join("volume");
        std::fs::create_dir_all(volume.join("sub")).unwrap();
        std::fs::write(volume.join("one"), "1").unwrap();
        let mut spec = self.container(&[
            "sh",
            "-c",
            "cat /some/where/one /a-file; echo 2 > /some/where/two; echo x > /a-file",
        ]);
        let at = |source: PathBuf, target: &str, read_only| Mount {
            source,
            target: target.into(),
            read_only,
            ..Mount::default()
        };
        spec.mounts.push(at(volume.clone(), "/some/where", false));
        spec.mounts.push(Mount {
            optional: true,
            ..at(volume.join("absent"), "/else/where", false)
        });
        spec.mounts.push(at(volume.join("one"), "/a-file", true));
        spec.working_directory = "/made/when/missing".into();
        let sandbox = self.sandbox("mounts").await;
        let container = sandbox.start(spec).await.unwrap();
        let exit = container.wait().await;
        let output = said(&container);
        assert!(output.contains("11") && output.contains("Read-only"), "{output}");
        assert_ne!(exit.code, 0);
        assert_eq!(std::fs::read_to_string(volume.join("two")).unwrap(), "2\n");
        // A root directory instead of the machine's files.
        let root = self.state.join("image");
        std::fs::create_dir_all(root.join("bin")).unwrap();
        std::fs::write(root.join("hello"), "from the image\n").unwrap();
        let mut spec = self.container(&["/tools/cat", "/hello"]);
        spec.root = Root::Directory(root.clone());
        spec.working_directory = "/".into();
        spec.mounts = vec![
            at("/usr/bin".into(), "/tools", true),
            at("/usr/lib".into(), "/usr/lib", true),
        ];
        for name in ["lib", "lib64"] {
            std::os::unix::fs::symlink(format!("usr/{name}"), root.join(name)).unwrap();
            if let Some(source) =
                Some(PathBuf::from("/usr").join(name)).filter(|p| p.exists() && name != "lib")
            {
                spec.mounts.push(at(source, &format!("/usr/{name}"), true));
            }
        }
        let container = sandbox.start(spec).await.unwrap();
        assert_eq!(container.wait().await.code, 0, "{}", said(&container));
        assert_eq!(said(&container), "from the image\n");
    }
}
