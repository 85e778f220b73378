"""Dask runs this in the scheduler of an adaptive job: it sets the number of workers by the work that waits."""

import asyncio
import json
import logging
import math
import os
import pathlib
import ssl
import time
import urllib.request

import dask.config
from dask.utils import parse_timedelta

ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
JOB = os.environ["TRAINYARD_DASK_JOB"]
# Somebody else may have changed the size or its bounds meanwhile.
LOOK_AGAIN_SECONDS = 60
log = logging.getLogger("distributed.scheduler")
tasks = set()


def call(method, path, body=None):
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    host = f"[{host}]" if ":" in host else host
    # Tokens are renewed while this runs.
    token = (ACCOUNT / "token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"}
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(f"https://{host}:{port}{path}", data, headers, method=method)
    tls = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(request, timeout=30, context=tls) as answer:
        return json.load(answer)


def set_size(wanted, in_each):
    """Has the job as many pods as so many workers need, within its bounds."""
    spec = call("GET", JOB)["spec"]
    elastic = spec["elastic"]
    others = sum(role["name"] == "leadworker" for role in spec["roles"])
    size = math.ceil(wanted / in_each) - others
    size = max(elastic.get("minReplicas", 1), min(size, elastic.get("maxReplicas", 10000)))
    if size != elastic["replicas"]:
        log.info("%s workers are wanted: the job gets %s pods of them, it had %s", wanted, size, elastic["replicas"])
        call("PATCH", f"{JOB}/scale", {"spec": {"replicas": size}})


async def adapt(scheduler):
    interval = parse_timedelta(dask.config.get("distributed.adaptive.interval"))
    patience = dask.config.get("distributed.adaptive.wait-count")
    settled, settled_at, fewer = None, 0, 0
    while True:
        await asyncio.sleep(interval)
        wanted, has = scheduler.adaptive_target(), len(scheduler.workers)
        fewer = fewer + 1 if wanted < has else 0
        is_settled = wanted == settled and time.monotonic() < settled_at + LOOK_AGAIN_SECONDS
        # Work that comes in pieces should not have workers leave between two of them.
        if is_settled or 0 < fewer < patience:
            continue
        hosts = {worker.host for worker in scheduler.workers.values()}
        try:
            await asyncio.to_thread(set_size, wanted, max(1, has // max(1, len(hosts))))
        except Exception as error:
            log.warning("the number of workers can't be changed: %s", error)
        settled, settled_at = wanted, time.monotonic()


async def dask_setup(scheduler):
    tasks.add(asyncio.create_task(adapt(scheduler)))
