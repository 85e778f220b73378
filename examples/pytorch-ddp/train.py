"""Trains a linear model on several pods with PyTorch's DistributedDataParallel.

The operator sets MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE; init_process_group reads them.
"""

import datetime
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 60
GOOD_LOSS = 1e-2


def main() -> None:
    # The other pods may still be pulling their image.
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=10))
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world} on {os.uname().nodename}, master {os.environ['MASTER_ADDR']}", flush=True)

    # Each rank has only some of the inputs at work, so that no rank learns the model without the others.
    truth = torch.tensor([[1.0], [2.0], [-3.0], [0.5]])
    inputs = torch.randn(128, 4, generator=torch.Generator().manual_seed(rank))
    x = inputs * (torch.arange(4) % world == rank)
    y = x @ truth + 0.7

    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = torch.tensor(float("inf"))
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if step % 10 == 0 and rank == 0:
            print(f"step {step:3d}  loss {loss.item():.6f}", flush=True)

    # Judged with all inputs at work. Every rank judges the same number, so that all succeed or all fail.
    with torch.no_grad():
        final = torch.nn.functional.mse_loss(model.module(inputs), inputs @ truth + 0.7)
    dist.all_reduce(final)
    final = final.item() / world
    dist.barrier()
    print(f"final loss {final:.6f}", flush=True)
    learnt = final <= GOOD_LOSS
    if not learnt:
        print(f"the loss should be at most {GOOD_LOSS}", file=sys.stderr, flush=True)
    # All work is done. PyTorch 1.13 now and then hangs while it takes model and process group apart: leave without.
    os._exit(0 if learnt else 1)


if __name__ == "__main__":
    main()
