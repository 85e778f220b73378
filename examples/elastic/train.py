"""Fits y = x w + b in workers that come and go while it trains, with nothing but Python 3.

Worker 0 leads. In each step it sends the model to all workers, each answers with the gradient of its share of the rows, and
worker 0 adds them up and makes the step. A step is saved when another worker has it, too: whichever of them is lost, even
worker 0, the others have it and go on from there. A worker that is to leave answers once more and says so, so that no step is
lost, nor done twice. What can be set in the environment:

    STEPS          steps to train                                                        300
    PAUSE          seconds that each step takes, so that there is time to try things     0.1
    PRINT_EVERY    how often worker 0 says how far it is                                 20
    SIZES          the training does not end before it had these sizes, in this order    none
"""

import json
import os
import pathlib
import random
import signal
import socket
import sys
import time

STEPS = int(os.environ.get("STEPS", "300"))
PAUSE = float(os.environ.get("PAUSE", "0.1"))
PRINT_EVERY = int(os.environ.get("PRINT_EVERY", "20"))
SIZES = [int(size) for size in os.environ.get("SIZES", "").split()]
DRAIN = pathlib.Path(os.environ.get("TRAINYARD_DRAIN", "/nowhere"))

PORT = 7000
RATE = 0.03
GOOD_LOSS = 1e-3
TRUTH = [1.0, 2.0, -3.0, 0.5, 0.7]  # the last one is b
CHANCE = random.Random(0)
ROWS = [[CHANCE.uniform(-1, 1) for _ in TRUTH[1:]] + [1.0] for _ in range(240)]
# A step takes a fraction of a second. Who is silent for so long is lost.
PATIENCE_SECONDS = 60

told_to_leave = []


def is_to_leave() -> bool:
    """Whether this worker was told to leave: by a file, or by SIGTERM where there is nobody who writes one."""
    return bool(told_to_leave) or (DRAIN / "leave").exists()


def learn(model: list[float], rows: list[list[float]]) -> list[float]:
    """The sum of the gradients of these rows, then that of their squared errors, then their number."""
    gradient, loss = [0.0] * len(model), 0.0
    for row in rows:
        error = sum((w - t) * x for w, t, x in zip(model, TRUTH, row))
        gradient = [g + 2 * error * x for g, x in zip(gradient, row)]
        loss += error * error
    return [*gradient, loss, len(rows)]


class Peer:
    """A connection to another worker: messages are lines of JSON."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(PATIENCE_SECONDS)
        # Messages are small and waited for.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection, self.lines = connection, connection.makefile("r")

    def tell(self, **message: object) -> None:
        self.connection.sendall((json.dumps(message) + "\n").encode())

    def hear(self) -> dict:
        line = self.lines.readline()
        if not line.endswith("\n"):
            raise ConnectionError("it is gone")
        return json.loads(line)

    def close(self) -> None:
        self.lines.close()
        self.connection.close()


def listen(host: str) -> socket.socket:
    """Where the others look for worker 0. Its name may not be known yet."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            server = socket.create_server((host, PORT))
            server.settimeout(0)
            return server
        except OSError as error:
            if time.monotonic() > deadline:
                sys.exit(f"can't listen at {host}:{PORT}: {error}")
            time.sleep(0.1)


class Leader:
    def __init__(self, hosts: list[str]) -> None:
        self.server = listen(hosts[0])
        self.peers: dict[int, Peer] = {}
        # What every worker has a copy of.
        self.state = {"step": 0, "model": [0.0] * len(TRUTH), "sizes": []}
        # Those that had been there before worker 0 was lost come back, and the last saved step with them.
        deadline = time.monotonic() + 10
        while len(self.peers) < len(hosts) - 1 and time.monotonic() < deadline:
            self.admit()
            time.sleep(0.02)

    def admit(self) -> None:
        """Takes in those who have come."""
        while True:
            try:
                peer = Peer(self.server.accept()[0])
            except BlockingIOError:
                return
            try:
                hello = peer.hear()
            except (OSError, ValueError):
                peer.close()
                continue
            # One that was replaced has the same number.
            self.drop(hello["index"])
            self.peers[hello["index"]] = peer
            if hello["state"] and hello["state"]["step"] > self.state["step"]:
                self.state = hello["state"]

    def drop(self, index: int) -> None:
        if peer := self.peers.pop(index, None):
            peer.close()

    def is_over(self) -> bool:
        had = iter(self.state["sizes"])
        return self.state["step"] >= STEPS and all(size in had for size in SIZES)

    def ask_all(self) -> list[list[float]]:
        """The gradients of all workers; none if one of them is lost, who leaves its rows to the others."""
        members = sorted(self.peers)
        for rank, index in enumerate(members, start=1):
            try:
                self.peers[index].tell(state=self.state, rank=rank, size=len(members) + 1)
            except OSError:
                pass  # It does not answer either.
        sums, lost = [learn(self.state["model"], ROWS[0 :: len(members) + 1])], []
        for index in members:
            try:
                answer = self.peers[index].hear()
                sums.append(answer["sum"])
                if answer["leaves"]:
                    print(f"worker {index} leaves after step {self.state['step']}", flush=True)
                    self.drop(index)
            except (OSError, ValueError):
                lost.append(index)
        for index in lost:
            print(f"worker {index} is lost", flush=True)
            self.drop(index)
        return [] if lost else sums

    def train(self) -> float:
        """Makes steps until the end, and returns the loss."""
        size = 0
        while True:
            self.admit()
            if not self.peers:
                size = 0  # A step that nobody else has would be lost with this worker.
                time.sleep(0.02)
                continue
            sums = self.ask_all()
            if not sums:
                continue
            *gradient, squares, count = [sum(part) for part in zip(*sums)]
            if count != len(ROWS):
                sys.exit(f"{count} of {len(ROWS)} rows were learnt from")
            step, loss = self.state["step"], squares / count
            if len(sums) != size:
                size = len(sums)
                if self.state["sizes"][-1:] != [size]:
                    self.state["sizes"].append(size)
                print(f"rank 0 of {size} goes on after step {step}", flush=True)
            if step > 0 and step % PRINT_EVERY == 0:
                print(f"loss {loss:.6f}, saved step {step}", flush=True)
            report(step=step, total=STEPS, loss=loss)
            if self.is_over():
                return loss
            model = [w - RATE * g / count for w, g in zip(self.state["model"], gradient)]
            self.state = {**self.state, "step": step + 1, "model": model}
            time.sleep(PAUSE)

    def end(self, loss: float) -> None:
        for peer in self.peers.values():
            try:
                peer.tell(loss=loss)
            except OSError:
                pass  # It is lost, and not needed any more.


def report(**numbers: float) -> None:
    """Tells Trainyard how far we are: one line of JSON, appended to the file that it names."""
    if path := os.environ.get("TRAINYARD_PROGRESS"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(numbers) + "\n")


def lead(hosts: list[str]) -> float:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    leader = Leader(hosts)
    loss = leader.train()
    leader.end(loss)
    step, model = leader.state["step"], ", ".join(f"{weight:.2f}" for weight in leader.state["model"])
    print(f"final loss {loss:.6f} after {step} steps, sizes {leader.state['sizes']}, model {model}", flush=True)
    return loss


def find(host: str) -> Peer:
    """A connection to worker 0, which may not have started yet."""
    while True:
        if is_to_leave():
            sys.exit(0)
        try:
            return Peer(socket.create_connection((host, PORT), timeout=5))
        except OSError:
            time.sleep(0.05)


def follow(index: int, leader: str) -> float:
    """Answers worker 0 until the end, and returns the loss."""
    state = None
    while True:
        peer = find(leader)
        try:
            peer.tell(index=index, state=state)
            while True:
                message = peer.hear()
                if "loss" in message:
                    return message["loss"]
                state, leaves = message["state"], is_to_leave()
                if leaves and DRAIN.exists():
                    (DRAIN / "acknowledged").touch()
                peer.tell(sum=learn(state["model"], ROWS[message["rank"] :: message["size"]]), leaves=leaves)
                if leaves:
                    leave(state["step"])
        except (OSError, ValueError) as error:
            print(f"no word from worker 0: {error}", flush=True)
            peer.close()


def leave(step: int) -> None:
    """Its last answer was its work, and worker 0 has it."""
    if DRAIN.exists():
        (DRAIN / "checkpoint").write_text(str(step))
    print(f"leaves after step {step}", flush=True)
    sys.exit(0)


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: told_to_leave.append(True))
    # The operator sets INDEX, and a variable of the name of the role with the hosts of its pods.
    index, hosts = int(os.environ["INDEX"]), os.environ["worker"].split(",")
    loss = lead(hosts) if index == 0 else follow(index, hosts[0])
    if loss > GOOD_LOSS:
        print(f"the loss is {loss:.6f} and should be at most {GOOD_LOSS}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
