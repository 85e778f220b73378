"""Fits y = x w with Horovod, in workers that come and go while it trains.

Horovod keeps what was committed in the memory of all processes, and gives it to those that join. The program ends STEPS
steps after the group has had the sizes that SIZES lists, in this order.
"""

import os
import time

import horovod.torch as hvd
import torch

STEPS = 60
GOOD_LOSS = 1e-2
SIZES = [int(size) for size in os.environ.get("SIZES", "").split()]
TRUTH = torch.tensor([[1.0], [2.0], [-3.0], [0.5]])


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    rank, size = hvd.rank(), hvd.size()
    if state.sizes[-1:] != [size]:
        state.sizes = [*state.sizes, size]
    remaining = iter(state.sizes)
    is_last = all(wanted in remaining for wanted in SIZES)
    first = state.step
    print(f"rank {rank} of {size} goes on after step {first}", flush=True)

    # Each process has only some of the inputs at work, so that no process learns the model without the others.
    inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(rank))
    shard = inputs * (torch.arange(4) % size == rank)
    while not is_last or state.step < first + STEPS:
        state.optimizer.zero_grad()
        torch.nn.functional.mse_loss(state.model(shard), shard @ TRUTH).backward()
        state.optimizer.step()
        state.step += 1
        # Here all processes learn that workers have come, or are to leave, and go on from this step.
        state.commit()
        if rank == 0:
            print(f"saved step {state.step}", flush=True)
        time.sleep(0.1)  # So small a model would be learnt before anybody can scale the job.

    loss = torch.nn.functional.mse_loss(state.model(inputs), inputs @ TRUTH).item()
    print(f"sizes {state.sizes}, step {state.step}, final loss {loss:.6f}", flush=True)
    assert loss <= GOOD_LOSS


def main() -> None:
    hvd.init()
    model = torch.nn.Linear(4, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    train(hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0, sizes=[]))


if __name__ == "__main__":
    main()
