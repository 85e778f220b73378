"""Fits y = x w with a parameter server, with nothing but Python 3: roles that bring their own way of working together.

The operator sets MODULE, which is the pod's role, INDEX, and a variable for each role with the host names of its pods. A
client has only some of the inputs at work, so that no client finds w without the others: the server adds up the gradients of
all clients, step by step, and only then answers.
"""

import json
import os
import random
import socket
import sys
import time

PORT = 7000
STEPS = 200
RATE = 0.1
GOOD_LOSS = 1e-3
TRUTH = (3.0, -1.0, 2.0, 0.5)


def rows() -> list:
    chance = random.Random(0)
    return [[chance.uniform(-1, 1) for _ in TRUTH] for _ in range(100)]


def errors(weights: list, xs: list) -> list:
    return [sum((w - t) * x for w, t, x in zip(weights, TRUTH, row)) for row in xs]


def loss(weights: list, xs: list) -> float:
    return sum(error * error for error in errors(weights, xs)) / len(xs)


def serve(clients: int) -> None:
    """Adds up gradients of all clients, and tells each the sum."""
    with socket.create_server(("", PORT)) as listener:
        print(f"waiting for {clients} clients", flush=True)
        while True:
            streams = [listener.accept()[0].makefile("rw") for _ in range(clients)]
            while all(lines := [stream.readline() for stream in streams]):
                gradients = [json.loads(line) for line in lines]
                total = [sum(part) for part in zip(*gradients)]
                for stream in streams:
                    print(json.dumps(total), file=stream, flush=True)


def call(host: str) -> socket.socket:
    while True:
        try:
            return socket.create_connection((host, PORT))
        except OSError:
            time.sleep(0.2)


def train(client: int, clients: int, server: str) -> int:
    mine = [[x if i % clients == client else 0.0 for i, x in enumerate(row)] for row in rows()]
    weights = [0.0] * len(TRUTH)
    with call(server) as connection, connection.makefile("rw") as stream:
        for step in range(1, STEPS + 1):
            wrong = errors(weights, mine)
            gradient = [sum(2 * e * x for e, x in zip(wrong, column)) / len(mine) for column in zip(*mine)]
            print(json.dumps(gradient), file=stream, flush=True)
            total = json.loads(stream.readline())
            weights = [weight - RATE * part for weight, part in zip(weights, total)]
            if step % 50 == 0 and client == 0:
                print(f"step {step:3d}  loss {loss(weights, mine):.6f}", flush=True)
    # Judged with all inputs at work.
    final = loss(weights, rows())
    print(f"client {client} of {clients}: final loss {final:.6f}", flush=True)
    if final > GOOD_LOSS:
        print(f"the loss should be at most {GOOD_LOSS}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    hosts = os.environ["client"].split(",")
    if os.environ["MODULE"] == "server":
        serve(len(hosts))
    sys.exit(train(int(os.environ["INDEX"]), len(hosts), os.environ["server"]))
