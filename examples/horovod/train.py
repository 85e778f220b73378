"""Fits y = x w with Horovod. A process sees only some of the inputs at work, so that no process finds w without the others."""

import socket

import horovod.torch as hvd
import torch

TRUTH = torch.tensor([[1.0], [2.0], [-3.0], [0.5]])

hvd.init()
rank, size = hvd.rank(), hvd.size()
torch.manual_seed(rank)
inputs = torch.randn(64, 4)
shard = inputs * (torch.arange(4) % size == rank)

model = torch.nn.Linear(4, 1, bias=False)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1 * size), named_parameters=model.named_parameters()
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
for step in range(60):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(shard), shard @ TRUTH).backward()
    optimizer.step()

loss = torch.nn.functional.mse_loss(model(inputs), inputs @ TRUTH).item()
controller = "mpi" if hvd.mpi_enabled() else "gloo"
print(f"rank {rank} of {size} on {socket.gethostname()} over {controller}: loss {loss:.6f}", flush=True)
assert loss < 0.001
