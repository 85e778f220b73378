//! How pods reach each other and the machine.

use std::process::Command;

use trainyard_local::yard::Network;

use super::{Node, said, wait_for};

/// That of the yard's address.
const BRIDGE_ADDRESS: &str = "02:00:0a:58:00:01";

impl Node {
    pub(super) async fn network(&self) {
        let (one, two) = (self.sandbox("one").await, self.sandbox("two").await);
        assert_ne!(one.address(), two.address());
        // Pods keep the address of the bridge in mind. One that came from its ports would change
        // with them, and pods would not reach the yard until they had forgotten it, half a minute
        // later.
        let bridge = || {
            let link = Command::new("ip").args(["-o", "link", "show", "yard"]).output();
            let link = String::from_utf8(link.unwrap().stdout).unwrap();
            let words: Vec<&str> = link.split_whitespace().collect();
            let place = words.iter().position(|word| *word == "link/ether").unwrap();
            words[place + 1].to_owned()
        };
        let before = bridge();
        let more = [self.sandbox("three").await, self.sandbox("four").await];
        assert_eq!((&*before, &*bridge()), (BRIDGE_ADDRESS, BRIDGE_ADDRESS));
        drop(more);
        let listen = "import socket; s=socket.create_server(('', 29500)); print('ready', flush=True); c,a=s.accept(); print(a[0], c.recv(9).decode(), flush=True)";
        let server = one
            .start(self.container(&["/usr/bin/python3", "-c", listen]))
            .await
            .unwrap();
        wait_for(&server, "ready").await;
        let call = format!(
            "import socket; c=socket.create_connection(('{}', 29500)); c.send(b'hello'); print(socket.gethostname())",
            one.address()
        );
        let client = two
            .start(self.container(&["/usr/bin/python3", "-c", &call]))
            .await
            .unwrap();
        assert_eq!(client.wait().await.code, 0, "{}", said(&client));
        assert_eq!(said(&client), "two\n");
        assert_eq!(server.wait().await.code, 0);
        assert_eq!(said(&server), format!("ready\n{} hello\n", two.address()));
        // The yard reaches pods, as probes have to; and nothing leads out of it.
        let server = one
            .start(self.container(&["/usr/bin/python3", "-c", listen]))
            .await
            .unwrap();
        wait_for(&server, "ready").await;
        let mut stream = tokio::net::TcpStream::connect((one.address(), 29500))
            .await
            .unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"probe")
            .await
            .unwrap();
        assert_eq!(server.wait().await.code, 0);
        let away = "import socket\ntry: socket.create_connection(('192.0.2.1', 80), 5)\nexcept OSError as e: print(e.errno)";
        let client = two
            .start(self.container(&["/usr/bin/python3", "-c", away]))
            .await
            .unwrap();
        client.wait().await;
        assert_eq!(
            said(&client),
            format!("{}\n", nix::errno::Errno::ENETUNREACH as i32)
        );
    }

    pub(super) async fn host_network(&self) {
        assert_eq!(self.yard.network, Network::Host);
        let (one, two) = (self.sandbox("one").await, self.sandbox("two").await);
        assert_ne!(one.address(), two.address());
        for sandbox in [&one, &two] {
            let listen = format!(
                "import socket; socket.create_server(('{}', 29500)); print('ok')",
                sandbox.address()
            );
            let container = sandbox
                .start(self.container(&["/usr/bin/python3", "-c", &listen]))
                .await
                .unwrap();
            assert_eq!(container.wait().await.code, 0, "{}", said(&container));
        }
        self.endings().await;
    }
}
