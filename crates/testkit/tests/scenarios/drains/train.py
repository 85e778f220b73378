"""Ranks learn a linear model together, save it when they are told to leave, and go on from there elsewhere.

Every SAVE_EVERY steps they save it anyway. /shared/steps lists the steps that were done, so that one that was lost stands
there twice. The training ends when somebody has put a file `enough` there.
"""

import datetime
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SHARED = pathlib.Path("/shared")
SAVED = SHARED / "model.pt"
DRAIN = pathlib.Path(os.environ.get("TRAINYARD_DRAIN", "/nowhere"))
SAVE_EVERY = int(os.environ["SAVE_EVERY"])

dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=30))
rank, world = dist.get_rank(), dist.get_world_size()

# Each rank has only some of the inputs at work, so that none learns the model without the others.
truth = torch.tensor([[1.0], [2.0], [-3.0], [0.5]])
inputs = torch.randn(128, 4, generator=torch.Generator().manual_seed(rank))
x = inputs * (torch.arange(4) % world == rank)
y = x @ truth + 0.7

torch.manual_seed(0)
linear = torch.nn.Linear(4, 1)
step = 0
if SAVED.exists():
    saved = torch.load(SAVED)
    linear.load_state_dict(saved["model"])
    step = saved["step"]
model = DistributedDataParallel(linear)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def save() -> None:
    if rank == 0:
        new = SAVED.with_suffix(".new")
        torch.save({"model": linear.state_dict(), "step": step}, new)
        new.rename(SAVED)
    dist.barrier()


while True:
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    step += 1
    if rank == 0:
        with open(SHARED / "steps", "a") as steps:
            print(step, file=steps)
    # Rank 0 decides, so that all do the same after the same step.
    leave, is_enough = (rank == 0 and path.exists() for path in (DRAIN / "leave", SHARED / "enough"))
    decision = torch.tensor([int(leave), int(is_enough)])
    dist.broadcast(decision, 0)
    leave, is_enough = decision.tolist()
    if leave:
        if rank == 0:
            (DRAIN / "acknowledged").touch()
        save()
        if rank == 0:
            (DRAIN / "checkpoint").write_text(str(step))
        # PyTorch 1.13 now and then hangs while it takes model and process group apart: leave without.
        os._exit(0)
    if is_enough:
        break
    if step % SAVE_EVERY == 0:
        save()
    time.sleep(0.1)

with torch.no_grad():
    final = torch.nn.functional.mse_loss(linear(inputs), inputs @ truth + 0.7)
dist.all_reduce(final)
print(f"final loss {final.item() / world:.6f}", flush=True)
dist.barrier()
sys.stdout.flush()
os._exit(0)
