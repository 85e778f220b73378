"""Fits y = x w on several pods with TensorFlow's MultiWorkerMirroredStrategy.

A worker has only some of the inputs at work, so that no worker finds w without the others. The operator sets TF_CONFIG,
which the strategy reads.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

STEPS = 60
GOOD_LOSS = 1e-3
TRUTH = [[1.0], [2.0], [-3.0], [0.5]]


def main() -> int:
    # It waits until all workers are there. No tensor may be made before.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank, world = strategy.cluster_resolver.task_id or 0, strategy.num_replicas_in_sync
    print(f"worker {rank} of {world} on {os.uname().nodename}", flush=True)

    truth = tf.constant(TRUTH)
    x = tf.random.stateless_normal((64, 4), seed=(rank, 0))
    part = x * tf.cast(tf.range(4) % world == rank, tf.float32)
    with strategy.scope():
        w = tf.Variable(tf.zeros((4, 1)), aggregation=tf.VariableAggregation.MEAN)

    def replica_step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((part @ w - part @ truth) ** 2)
        gradient = tape.gradient(loss, w)
        replica = tf.distribute.get_replica_context()
        w.assign_sub(0.1 * replica.all_reduce(tf.distribute.ReduceOp.SUM, gradient))
        return replica.all_reduce(tf.distribute.ReduceOp.MEAN, loss)

    @tf.function
    def step():
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(replica_step), axis=None)

    for number in range(1, STEPS + 1):
        loss = step()
        if number % 20 == 0 and rank == 0:
            print(f"step {number:3d}  loss {loss.numpy():.6f}", flush=True)

    # Judged with all inputs at work.
    final = tf.reduce_mean((x @ w - x @ truth) ** 2).numpy()
    print(f"final loss {final:.6f}", flush=True)
    if final > GOOD_LOSS:
        print(f"the loss should be at most {GOOD_LOSS}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
