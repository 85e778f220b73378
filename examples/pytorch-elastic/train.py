"""Trains a linear model on pods that come and go while it trains, with PyTorch's torchrun.

torchrun starts this program again in all pods whenever the group changes, and tells it its rank. Rank 0, whose pod always
stays, has the checkpoint. The program ends STEPS steps after the group has had the sizes that SIZES lists, in this order.
"""

import datetime
import os
import pathlib
import pickle
import signal
import socket
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
from torch.nn.parallel import DistributedDataParallel

STEPS = 60
GOOD_LOSS = 1e-2
SIZES = [int(size) for size in os.environ.get("SIZES", "").split()]
CHECKPOINT = pathlib.Path("/checkpoint/model.pt")
DRAIN = pathlib.Path(os.environ.get("TRAINYARD_DRAIN", "/nowhere"))


def leave_rendezvous() -> None:
    """Takes this pod out of torchrun's rendezvous, and has torchrun in all other pods meet anew.

    torchrun does both by itself when a pod joins. When one ends, the others wait until its heartbeat is too old, and spend
    one of their restarts, if they notice at all.
    """
    this = f"{socket.getfqdn()}_{os.getppid()}_"
    endpoint, run = os.environ["PET_RDZV_ENDPOINT"], os.environ["PET_RDZV_ID"]
    backend, _ = create_backend(RendezvousParameters("c10d", endpoint, run, 1, 1, is_host=False))
    is_written = False
    while not is_written:
        written, token = backend.get_state()
        state = pickle.loads(written)
        for node in [node for node in state.participants if str(node).startswith(this)]:
            del state.participants[node], state.last_heartbeats[node]
        # Where a node waits, all meet anew. The one that has rank 0 joins then, and waits no more.
        state.wait_list.add(min(state.participants))
        _, _, is_written = backend.set_state(pickle.dumps(state), token)


def leave_together(step: int) -> None:
    """Ends this step for all, if pods are to leave: these leave, and torchrun starts the program again in the others."""
    leaves = (DRAIN / "leave").exists()
    leavers = torch.tensor([int(leaves)])
    dist.all_reduce(leavers)  # All ranks learn of it at the same step, after rank 0 has saved it.
    if not leavers.item():
        return
    if leaves and os.environ["LOCAL_RANK"] == "0":
        print(f"leaves after step {step}", flush=True)
        (DRAIN / "checkpoint").write_text(str(step))
        leave_rendezvous()
        os.kill(os.getppid(), signal.SIGTERM)  # This ends torchrun here, and does not close the rendezvous.
    time.sleep(60)
    sys.exit("torchrun did not end this process")


def main() -> None:
    if DRAIN.is_dir():
        (DRAIN / "acknowledged").touch()  # Said at once, since a step may be long.
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=10))
    rank, world = dist.get_rank(), dist.get_world_size()

    # Rank 0 has what was saved; the others get it from rank 0.
    model = torch.nn.Linear(4, 1)
    saved = [{"step": 0, "sizes": []}]
    if rank == 0 and CHECKPOINT.exists():
        saved = [torch.load(CHECKPOINT)]
        model.load_state_dict(saved[0]["model"])
    dist.broadcast_object_list(saved)
    first, sizes = saved[0]["step"], saved[0]["sizes"]
    if sizes[-1:] != [world]:
        sizes.append(world)
    print(f"rank {rank} of {world} goes on after step {first}", flush=True)
    # Changes of size are no failures: torchrun gives up after PET_MAX_RESTARTS of these.
    print(f"torchrun has counted {os.environ['TORCHELASTIC_RESTART_COUNT']} failures", flush=True)

    # Each rank has only some of the inputs at work, so that no rank learns the model without the others.
    truth = torch.tensor([[1.0], [2.0], [-3.0], [0.5]])
    inputs = torch.randn(128, 4, generator=torch.Generator().manual_seed(rank))
    x = inputs * (torch.arange(4) % world == rank)
    y = x @ truth + 0.7

    # This also gives all ranks the model of rank 0.
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    remaining = iter(sizes)
    is_last = all(size in remaining for size in SIZES)
    step = first
    while not is_last or step < first + STEPS:
        step += 1
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(parallel(x), y).backward()
        optimizer.step()
        if rank == 0:
            new = CHECKPOINT.with_suffix(".new")
            torch.save({"model": model.state_dict(), "step": step, "sizes": sizes}, new)
            new.replace(CHECKPOINT)
            print(f"saved step {step}", flush=True)
        leave_together(step)
        time.sleep(0.1)  # So small a model would be learnt before anybody can scale the job.

    # Judged with all inputs at work. Every rank judges the same number, so that all succeed or all fail.
    with torch.no_grad():
        final = torch.nn.functional.mse_loss(model(inputs), inputs @ truth + 0.7)
    dist.all_reduce(final)
    final = final.item() / world
    print(f"sizes {sizes}, step {step}, final loss {final:.6f}", flush=True)
    dist.barrier()
    # All work is done. PyTorch 1.13 now and then hangs while it takes model and process group apart: leave without.
    os._exit(0 if final <= GOOD_LOSS else 1)


if __name__ == "__main__":
    main()
