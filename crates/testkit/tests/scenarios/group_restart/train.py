"""Four ranks learn a linear model, save it every ten steps, and go on from what is saved.

In the first attempt one rank stops for ever in the middle, so that the others hang in a collective.
"""

import datetime
import os
import pathlib
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 80
STOPS_AT = 35
SAVED = pathlib.Path("/checkpoints/model.pt")

dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=30))
rank, world = dist.get_rank(), dist.get_world_size()
attempt = int(os.environ["TRAINYARD_ATTEMPT"])

# Each rank has only some of the inputs at work, so that none learns the model without the others.
truth = torch.tensor([[1.0], [2.0], [-3.0], [0.5]])
inputs = torch.randn(128, 4, generator=torch.Generator().manual_seed(rank))
x = inputs * (torch.arange(4) % world == rank)
y = x @ truth + 0.7

torch.manual_seed(0)
linear = torch.nn.Linear(4, 1)
done = 0
if SAVED.exists():
    saved = torch.load(SAVED)
    linear.load_state_dict(saved["model"])
    done = saved["step"]
print(f"rank {rank} of attempt {attempt} goes on from step {done}", flush=True)
model = DistributedDataParallel(linear)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(done + 1, STEPS + 1):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        if rank == 0:
            new = SAVED.with_suffix(".new")
            torch.save({"model": linear.state_dict(), "step": step}, new)
            new.rename(SAVED)
        dist.barrier()
    if step == STOPS_AT and rank == 2 and attempt == 0:
        print("rank 2 stops", flush=True)
        time.sleep(3600)

with torch.no_grad():
    final = torch.nn.functional.mse_loss(linear(inputs), inputs @ truth + 0.7)
dist.all_reduce(final)
print(f"final loss {final.item() / world:.6f}", flush=True)
dist.barrier()
# PyTorch 1.13 now and then hangs while it takes model and process group apart: leave without.
os._exit(0)
