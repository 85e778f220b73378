"""Dask runs this in every worker of an elastic job: a worker that is told to leave gives its data to others first."""

import asyncio
import os
import pathlib
import signal

tasks = set()


async def leave(worker, drain, signalled):
    while not signalled.is_set() and not (drain / "leave").exists():
        await asyncio.sleep(0.2)
    is_told = not signalled.is_set()
    if is_told:
        (drain / "acknowledged").touch()
    try:
        # The answer has the worker when all that it alone had is on others, and not if there is none to take it.
        while worker.address not in await worker.scheduler.retire_workers(workers=[worker.address]):
            if signalled.is_set():
                break
            await asyncio.sleep(1)
        else:
            if is_told:
                (drain / "checkpoint").touch()
    finally:
        await worker.close()


async def dask_setup(worker):
    signalled = asyncio.Event()
    if not worker.nanny:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, signalled.set)
    drain = pathlib.Path(os.environ.get("TRAINYARD_DRAIN", "/nowhere"))
    tasks.add(asyncio.create_task(leave(worker, drain, signalled)))
