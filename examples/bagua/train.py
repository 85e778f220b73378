"""Stands in for a program of Bagua, which needs CUDA: it checks all that Bagua would find, with nothing but Python 3.

Every node listens on its ports and calls every other node on each of them. Then all nodes add up a number each through
the master, and compare the sum. The operator sets the variables.
"""

import os
import socket
import socketserver
import sys
import threading
import time

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
MASTER = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
NODES = os.environ["BAGUA_NODE_DOMAIN_NAMES"].split(",")
PORTS = [int(port) for port in [os.environ["BAGUA_SSH_PORT"], *os.environ["BAGUA_AVAILABLE_PORTS"].split(",")]]
PATIENCE_SECONDS = 600


class Greeting(socketserver.BaseRequestHandler):
    """Tells who calls whom they have reached."""

    def handle(self) -> None:
        self.request.sendall(f"{RANK}\n".encode())


class Sum(socketserver.StreamRequestHandler):
    """Adds up a number of each node, and tells every one the sum when all have called."""

    numbers: dict[int, int] = {}
    told: set[int] = set()
    changed = threading.Condition()

    def handle(self) -> None:
        rank, number = map(int, self.rfile.readline().split())
        with self.changed:
            self.numbers[rank] = number
            self.changed.notify_all()
            self.changed.wait_for(lambda: len(self.numbers) == WORLD, PATIENCE_SECONDS)
        self.wfile.write(f"{sum(self.numbers.values())}\n".encode())
        self.wfile.flush()
        with self.changed:
            self.told.add(rank)
            self.changed.notify_all()


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


def serve(port: int, handler: type[socketserver.BaseRequestHandler]) -> None:
    server = Server(("", port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def ask(address: tuple[str, int], question: str = "") -> int:
    """What a node answers. Its pod may not have started yet, nor have a name."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with socket.create_connection(address, timeout=5) as connection:
                connection.settimeout(PATIENCE_SECONDS)
                connection.sendall(question.encode())
                return int(connection.makefile().readline())
        except (OSError, ValueError) as error:
            if time.monotonic() > deadline:
                sys.exit(f"{address[0]}:{address[1]} does not answer: {error}")
            time.sleep(0.2)


def main() -> int:
    name = os.uname().nodename
    print(f"rank {RANK} of {WORLD} on {name}, ports {PORTS}, master {MASTER[0]}:{MASTER[1]}", flush=True)
    assert len(NODES) == WORLD, NODES
    assert NODES[RANK].split(".")[0] == name, f"{NODES[RANK]} is not {name}"
    assert NODES[0] == MASTER[0], f"{MASTER[0]} is not rank 0"
    assert MASTER[1] not in PORTS and len(set(PORTS)) == len(PORTS), PORTS
    assert socket.gethostbyname(NODES[RANK]) == os.environ["LOCAL_IP"], os.environ["LOCAL_IP"]

    for port in PORTS:
        serve(port, Greeting)
    if RANK == 0:
        serve(MASTER[1], Sum)
    for rank, node in enumerate(NODES):
        for port in PORTS:
            answer = ask((node, port))
            assert answer == rank, f"{node}:{port} is rank {answer}, and not {rank}"
    print(f"reached {len(NODES)} nodes on {len(PORTS)} ports each", flush=True)

    # Nobody leaves before all have reached all others.
    total = ask(MASTER, f"{RANK} {(RANK + 1) ** 2}\n")
    expected = sum((rank + 1) ** 2 for rank in range(WORLD))
    print(f"the sum is {total}", flush=True)
    if RANK == 0:
        with Sum.changed:
            Sum.changed.wait_for(lambda: len(Sum.told) == WORLD, PATIENCE_SECONDS)
    if total != expected:
        print(f"the sum should be {expected}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
