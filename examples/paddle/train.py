"""Fits y = x w on several pods with PaddlePaddle.

A process has only some of the inputs at work, so that no process finds w without the others. The operator sets the
variables by which the launchers of all pods find each other; the launcher sets those of the processes that it starts.
"""

import os
import sys

import paddle
import paddle.distributed as dist

STEPS = 60
GOOD_LOSS = 1e-3


def main() -> int:
    dist.init_parallel_env()
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world} on {os.uname().nodename}", flush=True)

    paddle.seed(rank)
    truth = paddle.to_tensor([[1.0], [2.0], [-3.0], [0.5]])
    x = paddle.randn([64, 4])
    part = x * (paddle.arange(4) % world == rank).astype("float32")
    w = paddle.zeros([4, 1])
    for step in range(1, STEPS + 1):
        error = part @ w - part @ truth
        gradient = part.T @ error * (2 / 64)
        dist.all_reduce(gradient)
        w = w - 0.1 * gradient
        if step % 20 == 0 and rank == 0:
            print(f"step {step:3d}  loss {float((error ** 2).mean()):.6f}", flush=True)

    # Judged with all inputs at work.
    final = float(((x @ w - x @ truth) ** 2).mean())
    print(f"final loss {final:.6f}", flush=True)
    if final > GOOD_LOSS:
        print(f"the loss should be at most {GOOD_LOSS}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
