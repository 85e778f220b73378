"""Trains a linear model with DistributedDataParallel, and goes on after a node was lost.

The operator sets MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE; init_process_group reads them.
With CHECKPOINT, rank 0 writes its state there, and a master that was replaced goes on from it.
"""

import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = int(os.environ.get("STEPS", "60"))
PAUSE = float(os.environ.get("STEP_SECONDS", "0"))
CHECKPOINT = os.environ.get("CHECKPOINT", "")
GOOD_LOSS = 1e-2


def restore(model, optimizer) -> int:
    """The steps that are done already."""
    if not os.path.exists(CHECKPOINT):
        return 0
    state = torch.load(CHECKPOINT)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


def save(model, optimizer, step: int) -> None:
    # Renamed when it is whole: a pod may end at any moment.
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, CHECKPOINT + ".new")
    os.replace(CHECKPOINT + ".new", CHECKPOINT)


def main() -> None:
    # A pod that is asked to go would train on for its grace period: the first process of a container ignores signals that it
    # does not handle. If the others came to their end meanwhile, nobody would be left to train with the pod that follows.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    # NCCL's settings are those of the image: the operator sets none of them.
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    # The other nodes may still be pulling the image.
    dist.init_process_group(backend, timeout=datetime.timedelta(minutes=10))
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world} on {os.uname().nodename}, master {os.environ['MASTER_ADDR']}", flush=True)
    device = torch.device("cuda" if backend == "nccl" else "cpu")

    # The same data everywhere, of which each rank takes its share.
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(256, 4, generator=generator)
    y = x @ torch.tensor([[1.0], [2.0], [-3.0], [0.5]]) + 0.7
    x, y = x[rank::world].to(device), y[rank::world].to(device)

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    done = torch.tensor(restore(model, optimizer) if rank == 0 else 0, device=device)
    dist.broadcast(done, src=0)
    if done.item():
        print(f"goes on after step {done.item()}", flush=True)
    # Every rank begins with the parameters of rank 0.
    model = DistributedDataParallel(model)
    loss = torch.nn.functional.mse_loss(model(x), y)
    for step in range(int(done.item()) + 1, STEPS + 1):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if step % 10 == 0 and rank == 0:
            print(f"step {step:3d}  loss {loss.item():.6f}", flush=True)
            if CHECKPOINT:
                save(model.module, optimizer, step)
        time.sleep(PAUSE)

    # Every rank judges the same number, so that all succeed or all fail.
    final = loss.detach().clone()
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
