"""Fits y = x w on the workers of a Dask cluster.

The launcher runs this program. It gives each worker a part of the data that stays there, and asks all of them for
gradients. A worker has only some of the inputs at work, so that w is found only if all of them take part. The operator
sets DASK_SCHEDULER_ADDRESS, which Client reads.
"""

import os
import sys

import numpy as np
from distributed import Client

STEPS = 40
GOOD_LOSS = 1e-3
TRUTH = np.array([1.0, 2.0, -3.0, 0.5])
# All pods that have a rank but this one.
WORKERS = int(os.environ["WORLD_SIZE"]) - 1


def part(rank: int, workers: int) -> np.ndarray:
    x = np.random.default_rng(rank).standard_normal((64, 4))
    return x * (np.arange(4) % workers == rank)


def gradient(x: np.ndarray, w: np.ndarray) -> tuple[str, np.ndarray]:
    return os.uname().nodename, 2 / len(x) * x.T @ (x @ w - x @ TRUTH)


def main() -> int:
    client = Client(os.environ["DASK_SCHEDULER_ADDRESS"], timeout=600)
    client.wait_for_workers(WORKERS, timeout=600)
    addresses = sorted(client.scheduler_info(n_workers=-1)["workers"])
    print(f"{len(addresses)} workers: {', '.join(addresses)}", flush=True)

    parts = [
        client.submit(part, rank, WORKERS, workers=[address]) for rank, address in enumerate(addresses)
    ]
    w, hosts = np.zeros(4), set()
    for step in range(1, STEPS + 1):
        # Each is computed where its part is.
        answers = client.gather([client.submit(gradient, data, w, pure=False) for data in parts])
        hosts |= {host for host, _ in answers}
        w = w - 0.1 * sum(slope for _, slope in answers)
        if step % 10 == 0:
            print(f"step {step:3d}  w {np.round(w, 3)}", flush=True)

    # Judged with all inputs at work.
    x = np.random.default_rng(99).standard_normal((64, 4))
    final = float(np.mean((x @ w - x @ TRUTH) ** 2))
    print(f"computed by {', '.join(sorted(hosts))}, final loss {final:.6f}", flush=True)
    client.close()
    if final > GOOD_LOSS or len(hosts) != WORKERS:
        print(f"the loss should be at most {GOOD_LOSS}, by {WORKERS} workers", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
