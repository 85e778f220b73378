"""Fits y = x w on the workers of a Dask cluster, which come and go while it trains.

The launcher runs this program. What it knows of the training it keeps itself; the data is on the workers. At every size of
the cluster each worker computes a further part of the data, and keeps it. A part has a mark that no other computation of it
has: the program fails if a part was computed again. It ends STEPS steps after the cluster has had the sizes that SIZES
lists, in this order. The operator sets DASK_SCHEDULER_ADDRESS, which Client reads.
"""

import os
import sys
import time
import uuid

import numpy as np
from distributed import Client, wait

STEPS = 40
GOOD_LOSS = 1e-3
SIZES = [int(size) for size in os.environ.get("SIZES", "1").split()]
TRUTH = np.array([1.0, 2.0, -3.0, 0.5])


def part(number: int) -> tuple[str, np.ndarray]:
    return uuid.uuid4().hex, np.random.default_rng(number).standard_normal((64, 4))


def gradient(data: tuple[str, np.ndarray], w: np.ndarray) -> tuple[str, np.ndarray]:
    mark, x = data
    return mark, 2 / len(x) * x.T @ (x @ w - x @ TRUTH)


def main() -> int:
    client = Client(timeout=600)
    w, step, parts, marks = np.zeros(4), 0, [], []

    def train(steps: int) -> None:
        nonlocal w, step
        for _ in range(steps):
            # Each is computed where its part is.
            answers = client.gather([client.submit(gradient, data, w, pure=False) for data in parts])
            w = w - 0.1 * sum(slope for _, slope in answers) / len(answers)
            # The first answer of a part says which mark it got when it was computed.
            marks.extend(mark for mark, _ in answers[len(marks) :])
            again = sum(mark != first for (mark, _), first in zip(answers, marks))
            if again:
                sys.exit(f"{again} parts of {len(parts)} were computed again")
            step += 1
            print(f"saved step {step}", flush=True)
            time.sleep(0.1)  # So small a model would be learnt before anybody can scale the job.

    for size in SIZES:
        while len(addresses := client.scheduler_info(n_workers=-1)["workers"]) != size:
            if parts:
                train(1)
            else:
                time.sleep(0.1)
        held = client.has_what().values()
        print(f"{size} workers go on after step {step}", flush=True)
        print(f"each has so many parts: {sorted(len(keys) for keys in held)}", flush=True)
        number = len(parts)
        parts += [client.submit(part, number + i, workers=[at], allow_other_workers=True) for i, at in enumerate(addresses)]
        wait(parts)
        train(1)
    train(STEPS)

    x = np.random.default_rng(99).standard_normal((64, 4))
    final = float(np.mean((x @ w - x @ TRUTH) ** 2))
    print(f"parts of data: {len(parts)}, computed again: 0", flush=True)
    print(f"sizes {SIZES}, step {step}, final loss {final:.6f}", flush=True)
    client.close()
    return 0 if final <= GOOD_LOSS else 1


if __name__ == "__main__":
    sys.exit(main())
