"""Fits y = x w with DeepSpeed, on processes that torchrun has started.

A process has only some of the inputs at work, so that no process finds w without the others. The operator sets the PET_
variables, which torchrun reads; torchrun sets those of the processes that it starts.
"""

import os
import sys

import deepspeed
import torch

STEPS = 60
GOOD_LOSS = 1e-3
TRUTH = torch.tensor([[1.0], [2.0], [-3.0], [0.5]])


def main() -> None:
    deepspeed.init_distributed()
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.manual_seed(rank)
    inputs = torch.randn(64, 4)
    part = inputs * (torch.arange(4) % world == rank)

    model = torch.nn.Linear(4, 1, bias=False)
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        config={
            "train_batch_size": world,
            "steps_per_print": 1000,
            "optimizer": {"type": "SGD", "params": {"lr": 0.1 * world}},
        },
    )
    truth, inputs, part = (some.to(engine.device) for some in (TRUTH, inputs, part))
    for step in range(STEPS):
        engine.backward(torch.nn.functional.mse_loss(engine(part), part @ truth))
        engine.step()

    # Judged with all inputs at work.
    final = torch.nn.functional.mse_loss(engine(inputs), inputs @ truth).item()
    print(f"rank {rank} of {world} on {os.uname().nodename}: final loss {final:.6f}", flush=True)
    learnt = final <= GOOD_LOSS
    if not learnt:
        print(f"the loss should be at most {GOOD_LOSS}", file=sys.stderr, flush=True)
    # All work is done. PyTorch 1.13 now and then aborts while it takes the process group apart: leave without.
    os._exit(0 if learnt else 1)


if __name__ == "__main__":
    main()
