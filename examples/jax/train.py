"""Fits y = x w on several pods with JAX.

A process has only some of the inputs at work, so that no process finds w without the others. The operator sets
JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID. Newer versions of JAX read them by themselves.
"""

import functools
import os
import sys

import jax

# How processors exchange what they have computed. Accelerators have their own way.
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(
    coordinator_address=os.environ["JAX_COORDINATOR_ADDRESS"],
    num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
    process_id=int(os.environ["JAX_PROCESS_ID"]),
)

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

STEPS = 60
GOOD_LOSS = 1e-3
TRUTH = np.array([1.0, 2.0, -3.0, 0.5], dtype=np.float32)


def main() -> int:
    rank, world = jax.process_index(), jax.process_count()
    print(f"process {rank} of {world} on {os.uname().nodename}, {jax.device_count()} devices in all", flush=True)

    x = np.random.default_rng(rank).standard_normal((64, 4)).astype(np.float32)
    part = x * (np.arange(4) % world == rank)
    mesh = Mesh(np.array(jax.devices()), ("pods",))
    rows = NamedSharding(mesh, PartitionSpec("pods"))
    # One array over all processes, of which each holds its own rows.
    inputs = jax.make_array_from_process_local_data(rows, part)
    targets = jax.make_array_from_process_local_data(rows, part @ TRUTH)

    everywhere = NamedSharding(mesh, PartitionSpec())

    @functools.partial(jax.jit, out_shardings=(everywhere, everywhere))
    def step(w, x, y):
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
        return w - 0.1 * world * gradient, loss

    w = np.zeros(4, dtype=np.float32)
    for number in range(1, STEPS + 1):
        w, loss = step(w, inputs, targets)
        if number % 20 == 0 and rank == 0:
            print(f"step {number:3d}  loss {float(loss):.6f}", flush=True)

    # Judged with all inputs at work.
    found = np.asarray(w)
    final = float(np.mean((x @ found - x @ TRUTH) ** 2))
    print(f"final loss {final:.6f}", flush=True)
    if final > GOOD_LOSS:
        print(f"the loss should be at most {GOOD_LOSS}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
