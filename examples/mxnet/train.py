"""Fits y = x w with MXNet's parameter server.

All roles run this program. In schedulers and servers `import mxnet` serves until the workers have ended, and ends the
program. A worker has only some of the inputs at work, so that no worker finds w without the others. The operator sets
the DMLC_ variables, by which the pods find the scheduler and know what they are.
"""

import os
import sys

print(f"{os.environ['DMLC_ROLE']} on {os.uname().nodename}", flush=True)

import mxnet as mx
import numpy as np

STEPS = 60
GOOD_LOSS = 1e-3
TRUTH = mx.nd.array([[1.0], [2.0], [-3.0], [0.5]])


def main() -> int:
    store = mx.kv.create("dist_sync")
    rank, world = store.rank, store.num_workers
    print(f"worker {rank} of {world}", flush=True)

    x = np.random.default_rng(rank).standard_normal((64, 4))
    part = mx.nd.array(x * (np.arange(4) % world == rank))
    w = mx.nd.zeros((4, 1))
    gradient = mx.nd.zeros((4, 1))
    store.init(0, gradient)
    for step in range(1, STEPS + 1):
        error = mx.nd.dot(part, w) - mx.nd.dot(part, TRUTH)
        # The servers add up what all workers push, before any of them can pull.
        store.push(0, mx.nd.dot(part.T, error) * (2 / len(x)))
        store.pull(0, out=gradient)
        w -= 0.1 * gradient
        if step % 20 == 0 and rank == 0:
            print(f"step {step:3d}  loss {(error ** 2).mean().asscalar():.6f}", flush=True)

    # Judged with all inputs at work.
    x = mx.nd.array(x)
    final = ((mx.nd.dot(x, w) - mx.nd.dot(x, TRUTH)) ** 2).mean().asscalar()
    print(f"final loss {final:.6f}", flush=True)
    if final > GOOD_LOSS:
        print(f"the loss should be at most {GOOD_LOSS}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
