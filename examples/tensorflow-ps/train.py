"""Fits y = x w with TensorFlow's ParameterServerStrategy.

All roles run this program. Parameter servers hold w, workers compute, and the chief tells them what to do. A worker has
only some of the inputs at work, so that w is found only if all of them take part. The operator sets TF_CONFIG.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

STEPS = 60
GOOD_LOSS = 1e-3
TRUTH = tf.constant([[1.0], [2.0], [-3.0], [0.5]])


def serve(cluster: tf.distribute.cluster_resolver.ClusterResolver) -> None:
    """Serves until the job ends, which ends this pod."""
    print(f"{cluster.task_type} {cluster.task_id} serves on {os.uname().nodename}", flush=True)
    server = tf.distribute.Server(
        cluster.cluster_spec(), job_name=cluster.task_type, task_index=cluster.task_id, protocol="grpc"
    )
    server.join()


def main() -> int:
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type in ("worker", "ps"):
        serve(cluster)

    # It waits until all workers and servers are there.
    strategy = tf.distribute.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    workers = cluster.cluster_spec().num_tasks("worker")
    servers = cluster.cluster_spec().num_tasks("ps")
    print(f"chief of {workers} workers and {servers} servers on {os.uname().nodename}", flush=True)

    with strategy.scope():
        w = tf.Variable(tf.zeros((4, 1)))
    assert "/job:ps" in w.device, w.device

    @tf.function
    def step():
        # This runs in a worker, and its own file tells which one.
        name = tf.strings.strip(tf.io.read_file("/etc/hostname"))
        rank = tf.strings.to_number(tf.strings.split(name, "-")[-1], tf.int32)
        x = tf.random.stateless_normal((64, 4), seed=(0, 0))
        part = x * tf.cast(tf.range(4) % workers == rank, tf.float32)
        gradient = 2 / 64 * tf.transpose(part) @ (part @ w - part @ TRUTH)
        w.assign_sub(0.1 * gradient)
        return name

    names = set()
    for number in range(1, STEPS + 1):
        results = [coordinator.schedule(step) for _ in range(2 * workers)]
        coordinator.join()
        names |= {result.fetch().decode() for result in results}
    print(f"computed by {', '.join(sorted(names))}", flush=True)

    # Judged with all inputs at work.
    x = tf.random.stateless_normal((64, 4), seed=(1, 1))
    found = w.read_value()
    final = tf.reduce_mean((x @ found - x @ TRUTH) ** 2).numpy()
    print(f"final loss {final:.6f}", flush=True)
    if final > GOOD_LOSS or len(names) != workers:
        print(f"the loss should be at most {GOOD_LOSS}, by {workers} workers", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
