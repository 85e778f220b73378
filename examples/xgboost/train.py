"""Boosts trees on several pods with XGBoost.

Each rank has the rows of a range of its own, so that no rank learns the whole curve without the others. Rank 0 runs the
tracker by which the ranks find each other. The operator sets the DMLC_ variables.
"""

import os
import socket
import sys
import time

import numpy as np
import xgboost as xgb
from xgboost import collective
from xgboost.tracker import RabitTracker

HOST, PORT = os.environ["DMLC_TRACKER_URI"], int(os.environ["DMLC_TRACKER_PORT"])
RANK, WORLD = int(os.environ["DMLC_TASK_ID"]), int(os.environ["DMLC_NUM_WORKER"])
GOOD_ERROR = 0.05
PATIENCE_SECONDS = 600


def join() -> None:
    """Joins the others. The pod of rank 0 may not have started yet, nor have a name."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            address = socket.gethostbyname(HOST)
            collective.init(dmlc_tracker_uri=address, dmlc_tracker_port=PORT, dmlc_task_id=str(RANK))
            return
        except (OSError, xgb.core.XGBoostError) as error:
            if time.monotonic() > deadline:
                sys.exit(f"the tracker does not answer at {HOST}:{PORT}: {error}")
            time.sleep(0.5)


def curve(x: np.ndarray) -> np.ndarray:
    return np.sin(3 * x[:, 0]) + np.sign(x[:, 0])


def train() -> int:
    print(f"rank {RANK} of {WORLD} on {os.uname().nodename}, tracker {HOST}:{PORT}", flush=True)
    chance = np.random.default_rng(RANK)
    low, high = -1 + 2 * RANK / WORLD, -1 + 2 * (RANK + 1) / WORLD
    x = chance.uniform(low, high, (400, 1))
    rows = collective.allreduce(np.array([len(x)]), collective.Op.SUM)
    options = {"max_depth": 3, "eta": 0.3, "base_score": 0.0, "nthread": 1}
    model = xgb.train(options, xgb.DMatrix(x, curve(x)), num_boost_round=60)

    # Judged over the ranges of all ranks.
    everywhere = np.linspace(-0.99, 0.99, 397).reshape(-1, 1)
    error = float(np.mean(np.abs(model.predict(xgb.DMatrix(everywhere)) - curve(everywhere))))
    print(f"learnt from {rows[0]} rows, final error {error:.4f}", flush=True)
    if rows[0] != 400 * WORLD or error > GOOD_ERROR:
        print(f"the error should be at most {GOOD_ERROR}", file=sys.stderr, flush=True)
        return 1
    return 0


def main() -> int:
    tracker = None
    if RANK == 0:
        tracker = RabitTracker(n_workers=WORLD, host_ip=socket.gethostbyname(HOST), port=PORT)
        tracker.start()
    join()
    code = train()
    collective.finalize()
    if tracker is not None:
        tracker.wait_for()
    return code


if __name__ == "__main__":
    sys.exit(main())
