"""Trains a small neural network on several workers with nothing but Python's standard library.

Each worker holds a share of the data. In every step it computes the gradient of its share, all gradients are averaged
over sockets through rank 0, and every worker makes the same step: data-parallel training, as the large frameworks do.

The operator sets MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE. Without them this is a training of one.

Rank 0 writes a checkpoint now and then, and when it is told to stop; the next start goes on from there. A training that
has reached its end leaves the model and removes the checkpoint. What can be set in the environment:

    STEPS            steps to train                                            600
    CHECKPOINT       where the checkpoint goes                                 checkpoint.json
    MODEL            where the model goes                                      model.json
    CRASH_AT_STEP    the last rank fails here, if it did not start from a checkpoint; to see what happens then
"""

import array
import contextlib
import json
import math
import os
import random
import signal
import socket
import sys
import time

STEPS = int(os.environ.get("STEPS", "600"))
CHECKPOINT = os.environ.get("CHECKPOINT", "checkpoint.json")
MODEL = os.environ.get("MODEL", "model.json")
CRASH_AT_STEP = int(os.environ.get("CRASH_AT_STEP", "0"))

POINTS = 480
HIDDEN = 12
LEARNING_RATE = 0.05
MOMENTUM = 0.9
REPORT_EVERY = 10
PRINT_EVERY = 60
SAVE_EVERY = 100
GOOD_LOSS = 0.1
PATIENCE_SECONDS = 120


class Group:
    """All workers of the job. Rank 0 has a connection to every other."""

    def __init__(self) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        address = (os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500")))
        if self.size == 1:
            self.peers = []
        elif self.rank == 0:
            # Only where the others look for it, and nowhere else.
            with socket.create_server(address, backlog=self.size) as server:
                server.settimeout(PATIENCE_SECONDS)
                arrived = [prepared(server.accept()[0]) for _ in range(self.size - 1)]
            # In the order of their ranks: sums of floating point depend on the order, and a training should not.
            self.peers = [peer for _, peer in sorted((receive(peer, 1), peer) for peer in arrived)]
        else:
            self.peers = [prepared(connect(address))]
            send(self.peers[0], [self.rank])

    def mean(self, values: list[float]) -> list[float]:
        """The mean of every worker's values, the same on all of them."""
        if self.size == 1:
            return values
        if self.rank != 0:
            send(self.peers[0], values)
            return receive(self.peers[0], len(values))
        everybody = [values] + [receive(peer, len(values)) for peer in self.peers]
        means = [sum(column) / self.size for column in zip(*everybody)]
        self.tell(means)
        return means

    def tell(self, values: list[float]) -> list[float]:
        """Rank 0's values, on every worker."""
        if self.rank != 0:
            return receive(self.peers[0], len(values))
        for peer in self.peers:
            send(peer, values)
        return values


def connect(address: tuple[str, int]) -> socket.socket:
    """A connection to rank 0, which may not have started yet, nor have a name."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return socket.create_connection(address, timeout=5)
        except OSError as error:
            if time.monotonic() > deadline:
                sys.exit(f"rank 0 does not answer at {address[0]}:{address[1]}: {error}")
            time.sleep(0.05)


def prepared(peer: socket.socket) -> socket.socket:
    peer.settimeout(PATIENCE_SECONDS)
    # Messages are small and waited for.
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def send(peer: socket.socket, values: list[float]) -> None:
    peer.sendall(array.array("d", values).tobytes())


def receive(peer: socket.socket, count: int) -> list[float]:
    values = array.array("d")
    wanted = count * values.itemsize
    data = bytearray()
    while len(data) < wanted:
        part = peer.recv(wanted - len(data))
        if not part:
            raise ConnectionError("a worker has gone away")
        data += part
    values.frombytes(bytes(data))
    return values.tolist()


def moons() -> list[tuple[float, float, int]]:
    """Points on two half circles that reach into each other, the same on every worker: which circle is to be learnt."""
    chance = random.Random(1)
    points = []
    for i in range(POINTS):
        angle, label = chance.uniform(0, math.pi), i % 2
        x, y = (math.cos(angle), math.sin(angle)) if label == 0 else (1 - math.cos(angle), 0.5 - math.sin(angle))
        points.append((x + chance.gauss(0, 0.15), y + chance.gauss(0, 0.15), label))
    return points


def fresh() -> list[float]:
    """Weights to start with: four for each hidden unit (x, y, bias, output), and the output's bias."""
    chance = random.Random(2)
    return [chance.gauss(0, 1) for _ in range(4 * HIDDEN)] + [0.0]


def learn(weights: list[float], points: list[tuple[float, float, int]]) -> list[float]:
    """The gradient of the mean loss over these points, and last the loss itself."""
    gradient = [0.0] * len(weights)
    total = 0.0
    units = range(0, 4 * HIDDEN, 4)
    for x, y, label in points:
        active = [math.tanh(weights[u] * x + weights[u + 1] * y + weights[u + 2]) for u in units]
        score = weights[-1] + sum(weights[u + 3] * a for u, a in zip(units, active))
        probability = 1 / (1 + math.exp(-max(-30.0, min(30.0, score))))
        total -= math.log(max(1e-12, probability if label else 1 - probability))
        error = probability - label
        for u, a in zip(units, active):
            back = error * weights[u + 3] * (1 - a * a)
            gradient[u] += back * x
            gradient[u + 1] += back * y
            gradient[u + 2] += back
            gradient[u + 3] += error * a
        gradient[-1] += error
    return [value / len(points) for value in [*gradient, total]]


def write(path: str, content: dict) -> None:
    """Writes a file whole or not at all: who stops us here leaves the one that was there."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)


def load() -> tuple[int, list[float], list[float]]:
    """The step, weights and velocity to go on from."""
    weights = fresh()
    start = (0, weights, [0.0] * len(weights))
    try:
        with open(CHECKPOINT, encoding="utf-8") as file:
            saved = json.load(file)
    except FileNotFoundError:
        return start
    if len(saved["weights"]) != len(weights) or saved["step"] >= STEPS:
        print(f"{CHECKPOINT} is of another training: starting afresh", flush=True)
        return start
    return saved["step"], saved["weights"], saved["velocity"]


def report(**numbers: float) -> None:
    """Tells Trainyard how far we are: one line of JSON, appended to the file that it names."""
    if path := os.environ.get("TRAINYARD_PROGRESS"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(numbers) + "\n")


def train(group: Group) -> int:
    chief = group.rank == 0
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))

    # Rank 0 alone reads the checkpoint, so that all go on from the same one.
    first, weights, velocity = load() if chief else (0, fresh(), [0.0] * (4 * HIDDEN + 1))
    begin = group.tell([first, *weights, *velocity])
    step, weights, velocity = int(begin[0]), begin[1 : 1 + len(weights)], begin[1 + len(weights) :]
    resumed = step > 0
    points = moons()[group.rank :: group.size]
    origin = f"going on from step {step}" if resumed else "starting afresh"
    print(f"rank {group.rank} of {group.size}: {len(points)} points, {origin}", flush=True)

    def save() -> None:
        write(CHECKPOINT, {"step": step, "weights": weights, "velocity": velocity})

    loss = math.inf
    try:
        while step < STEPS:
            if stop:
                raise InterruptedError("told to stop")
            if step + 1 == CRASH_AT_STEP and not resumed and group.rank == group.size - 1:
                sys.exit(f"step {step + 1}: failing, as CRASH_AT_STEP asks")
            *gradient, loss = group.mean(learn(weights, points))
            velocity = [MOMENTUM * v - LEARNING_RATE * g for v, g in zip(velocity, gradient)]
            weights = [w + v for w, v in zip(weights, velocity)]
            step += 1
            if chief and (step % REPORT_EVERY == 0 or step in (1, STEPS)):
                report(step=step, total=STEPS, loss=loss)
            if chief and (step % PRINT_EVERY == 0 or step in (1, STEPS)):
                print(f"step {step:4d}/{STEPS}  loss {loss:.4f}", flush=True)
            if chief and step % SAVE_EVERY == 0 and step < STEPS:
                save()
    except OSError as error:
        # We are leaving already: being told once more must not cut short what follows.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # Told to stop, or a worker is gone: either way this step did not happen, and the one before did.
        if chief and step > 0:
            save()
            print(f"checkpoint of step {step} in {CHECKPOINT}", flush=True)
        print(f"rank {group.rank} stops after step {step}: {error}", file=sys.stderr, flush=True)
        return 143 if stop else 1

    if chief:
        write(MODEL, {"loss": loss, "hidden": HIDDEN, "weights": weights})
        with contextlib.suppress(FileNotFoundError):
            os.remove(CHECKPOINT)
        print(f"done: the model is in {MODEL}", flush=True)
    # Every rank judges the same number, so that all succeed or all fail.
    if loss > GOOD_LOSS:
        print(f"the loss is {loss:.4f} and should be at most {GOOD_LOSS}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    # The first process of a container is not ended by a signal that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(train(Group()))
