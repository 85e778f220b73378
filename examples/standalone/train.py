"""Tries learning rates, one in each pod: pods that train each for itself, with nothing but Python 3.

TRAINYARD_INDEX, which every pod finds, says which rate is this one's.
"""

import os
import random
import sys

STEPS = 200
GOOD_LOSS = 1e-3
RATES = [0.05, 0.1, 0.2, 0.4]


def main() -> int:
    index = int(os.environ["TRAINYARD_INDEX"])
    rate = RATES[index % len(RATES)]
    chance = random.Random(0)
    points = [(x, 3 * x - 1) for x in (chance.uniform(-1, 1) for _ in range(100))]
    slope, offset, loss = 0.0, 0.0, 0.0
    for step in range(1, STEPS + 1):
        errors = [(slope * x + offset - y, x) for x, y in points]
        loss = sum(error * error for error, _ in errors) / len(points)
        slope -= rate * sum(2 * error * x for error, x in errors) / len(points)
        offset -= rate * sum(2 * error for error, _ in errors) / len(points)
        if step % 50 == 0:
            print(f"step {step:3d}  loss {loss:.6f}", flush=True)
    print(f"rate {rate} on {os.uname().nodename}: final loss {loss:.6f}", flush=True)
    if loss > GOOD_LOSS:
        print(f"the loss should be at most {GOOD_LOSS}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
