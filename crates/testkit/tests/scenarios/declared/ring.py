"""Fits a line through three points, of which each of three pods has one.

No pod can do so alone. In every step a pod passes on to its neighbour in the ring what it has, and
then what came to it, until all have the sum.
"""

import os
import socket
import struct
import time

PORT, RANK = int(os.environ["RING_PORT"]), int(os.environ["RING_RANK"])
NEXT = os.environ["RING_NEXT"]
with open("/ring/hosts") as file:
    HOSTS = file.read().split()
SIZE = len(HOSTS)
assert NEXT == HOSTS[(RANK + 1) % SIZE], (NEXT, HOSTS)
assert HOSTS[RANK].split(".")[0] == socket.gethostname(), HOSTS


def connect():
    # The neighbour may not have a name yet, or not listen.
    while True:
        try:
            return socket.create_connection((NEXT, PORT), timeout=10)
        except OSError:
            time.sleep(0.5)


server = socket.create_server(("", PORT))
after = connect()
before, _ = server.accept()
before.settimeout(60)


def receive(length):
    data = b""
    while len(data) < length:
        part = before.recv(length - len(data))
        if not part:
            raise ConnectionError("the pod before this one has ended")
        data += part
    return data


def total(values):
    form = f"!{len(values)}d"
    sums, passed = values, values
    for _ in range(SIZE - 1):
        after.sendall(struct.pack(form, *passed))
        passed = struct.unpack(form, receive(struct.calcsize(form)))
        sums = [one + other for one, other in zip(sums, passed)]
    return sums


x = RANK - 1
y = 3 * x - 2
slope = offset = 0.0
for _ in range(100):
    error = slope * x + offset - y
    of_slope, of_offset = total([error * x, error])
    slope -= 0.6 * of_slope / SIZE
    offset -= 0.6 * of_offset / SIZE
print(f"learned slope {slope:.6f} and offset {offset:.6f}")
# The neighbour has all that it needs when it says so: the end of a connection may discard data.
total([0.0])
