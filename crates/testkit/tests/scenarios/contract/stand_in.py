"""Stands in for a program of a framework, and needs nothing but Python.

    stand_in.py FRAMEWORK

It reads every variable that the framework's pods are promised, serves where the framework's
programs serve, and reaches every address that it was told of. Whoever answers says its name, which
must be the one that the address promises. Then it tells all of them that it is done.

CALLERS has for each pod of the role how many other pods know it. When so many have told it that
they are done, it exits with 0, or serves on if STAYS=1, as servers do. A promise that is not kept
makes it exit with 1.
"""

import ipaddress
import json
import os
import signal
import socket
import sys
import threading
import time

NAME = socket.gethostname()
JOB, ROLE = os.environ["TRAINYARD_JOB"], os.environ["TRAINYARD_ROLE"]
INDEX = int(os.environ["TRAINYARD_INDEX"])


def expect(what, found, promised):
    if found != promised:
        print(f"{what} is {found!r}, and should be {promised!r}", flush=True)
        os._exit(1)


def variable(name):
    if name not in os.environ:
        print(f"{name} is not set", flush=True)
        os._exit(1)
    return os.environ[name]


def same(*names):
    """The one value that all of these variables have."""
    for name in names[1:]:
        expect(name, variable(name), variable(names[0]))
    return variable(names[0])


def number(name):
    return int(variable(name))


def address(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def own_ip():
    return socket.gethostbyname(NAME)


class Contract:
    """Ports on which a pod serves, and addresses that it was told of."""

    def __init__(self, serves, told):
        self.serves, self.told = set(serves), list(dict.fromkeys(told))


def torchrun():
    master = same("MASTER_ADDR", "PET_MASTER_ADDR"), int(same("MASTER_PORT", "PET_MASTER_PORT"))
    rank, nodes = int(same("RANK", "PET_NODE_RANK")), number("PET_NNODES")
    expect("WORLD_SIZE", number("WORLD_SIZE"), nodes * number("PET_NPROC_PER_NODE"))
    expect("rank", 0 <= rank < nodes, True)
    expect("PYTHONUNBUFFERED", variable("PYTHONUNBUFFERED"), "1")
    return Contract([master[1]] if rank == 0 else [], [master])


def tensorflow():
    config = json.loads(variable("TF_CONFIG"))
    expect("the task", config["task"], {"type": ROLE, "index": INDEX})
    expect("environment", config["environment"], "cloud")
    # A job that a task is told of in part is a map of indices.
    cluster = {
        role: tasks if isinstance(tasks, dict) else {str(i): task for i, task in enumerate(tasks)}
        for role, tasks in config["cluster"].items()
    }
    expect("an evaluator in the cluster", "evaluator" in cluster, False)
    own = None if ROLE == "evaluator" else cluster[ROLE][str(INDEX)]
    if "sparseCluster" in config:
        sparse = config["sparseCluster"]
        expect("workers", cluster.get("worker", {}), {} if ROLE == "ps" else {str(INDEX): own})
        expect("workers, in other words", sparse["worker"], cluster.get("worker", {}))
        expect("servers, in other words", sparse["ps"], list(cluster["ps"].values()))
    told = [address(task) for tasks in cluster.values() for task in tasks.values()]
    return Contract([address(own)[1]] if own else [], told)


def mxnet():
    root = variable("DMLC_PS_ROOT_URI"), number("DMLC_PS_ROOT_PORT")
    config = json.loads(variable("MX_CONFIG"))
    cluster = {
        role: [(pod["url"], pod["port"]) for pod in pods] for role, pods in config["cluster"].items()
    }
    expect("DMLC_ROLE", variable("DMLC_ROLE"), ROLE)
    expect("the task", config["task"], {"type": ROLE, "index": INDEX})
    expect("the scheduler", cluster["scheduler"], [root])
    expect("DMLC_NUM_SERVER", number("DMLC_NUM_SERVER"), len(cluster["server"]))
    expect("DMLC_NUM_WORKER", number("DMLC_NUM_WORKER"), len(cluster["worker"]))
    expect("DMLC_WORKER_ID", os.environ.get("DMLC_WORKER_ID"), str(INDEX) if ROLE == "worker" else None)
    expect("DMLC_NODE_HOST", variable("DMLC_NODE_HOST"), own_ip())
    expect("DMLC_USE_KUBERNETES", variable("DMLC_USE_KUBERNETES"), "1")
    expect("PS_VERBOSE", variable("PS_VERBOSE"), "0")
    own = cluster[ROLE][INDEX]
    return Contract([own[1]], [pod for pods in cluster.values() for pod in pods])


def jax():
    coordinator = address(variable("JAX_COORDINATOR_ADDRESS"))
    expect("the other names", (variable("COORDINATOR_ADDRESS"), number("COORDINATOR_PORT")), coordinator)
    process = int(same("JAX_PROCESS_ID", "PROCESS_ID"))
    expect("the process", process, INDEX)
    expect("the process", process < int(same("JAX_NUM_PROCESSES", "NUM_PROCESSES")), True)
    return Contract([coordinator[1]] if process == 0 else [], [coordinator])


def xgboost():
    tracker = same("DMLC_TRACKER_URI", "MASTER_ADDR"), int(same("DMLC_TRACKER_PORT", "MASTER_PORT"))
    rank, world = int(same("DMLC_TASK_ID", "RANK")), int(same("DMLC_NUM_WORKER", "WORLD_SIZE"))
    # LightGBM: every machine listens, and knows all others.
    port = number("WORKER_PORT")
    workers = [(host, port) for host in variable("WORKER_ADDRS").split(",")]
    expect("WORKER_ADDRS", len(workers), world - 1)
    expect("the own name", (tracker, *workers)[rank][0].split(".")[0], NAME)
    return Contract([port, *([tracker[1]] if rank == 0 else [])], [tracker, *workers])


def paddle():
    host, port = address(variable("PADDLE_MASTER"))
    expect("PADDLE_JOB_ID", variable("PADDLE_JOB_ID"), JOB)
    expect("POD_IP", variable("POD_IP"), own_ip())
    expect("PADDLE_RANK", 0 <= number("PADDLE_RANK") < number("PADDLE_NNODES"), True)
    counts = [os.environ.get(name) for name in ("PADDLE_SERVER_NUM", "PADDLE_TRAINER_NUM")]
    if counts != [None, None]:
        expect("servers and trainers", counts, ["1", None] if ROLE == "master" else [None, "1"])
    # The launcher serves where the master's address is its own.
    expect("the own address", host == variable("POD_IP"), number("PADDLE_RANK") == 0)
    return Contract([port] if number("PADDLE_RANK") == 0 else [], [(host, port)])


def ports_of(text):
    return [int(port) for port in text.split(",") if port]


def bagua():
    etcd = [number("ETCD_CLIENT_PORT"), number("ETCD_SERVER_PORT")] if "ETCD_CLIENT_PORT" in os.environ else []
    if ROLE == "etcd":
        return Contract(etcd, [])
    service = variable("SERVICE_DOMAIN_NAME")
    own = [number("BAGUA_SSH_PORT"), *ports_of(variable("BAGUA_AVAILABLE_PORTS"))]
    if etcd:
        expect("MIN_SIZE", 1 <= number("MIN_SIZE") <= number("MAX_SIZE"), True)
        expect("JOB_ID", variable("JOB_ID"), JOB)
        host = variable("ETCD_HOST")
        find_behind(service, [host, NAME])
        return Contract(own, [(host, port) for port in etcd])
    expect("LOCAL_IP", variable("LOCAL_IP"), own_ip())
    nodes, rank = variable("BAGUA_NODE_DOMAIN_NAMES").split(","), number("RANK")
    expect("the nodes", len(nodes), number("WORLD_SIZE"))
    expect("the own name", nodes[rank].split(".")[0], NAME)
    master = variable("MASTER_ADDR"), number("MASTER_PORT")
    expect("MASTER_ADDR", master[0], nodes[0])
    expect("MASTER_PORT among the other ports", master[1] in own, False)
    find_behind(service, nodes)
    serves = [*own, *([master[1]] if rank == 0 else [])]
    return Contract(serves, [master, *((node, port) for node in nodes for port in own)])


def dask():
    scheduler = variable("SCHEDULER")
    expect("the scheduler", scheduler.startswith("tcp://"), True)
    host, port = address(scheduler.removeprefix("tcp://"))
    if ROLE == "scheduler":
        expect("MY_IP", variable("MY_IP"), own_ip())
        return Contract([port], [(host, port)])
    expect("DASK_SCHEDULER_ADDRESS", variable("DASK_SCHEDULER_ADDRESS"), scheduler)
    expect("the other names", (variable("SchedulerAddress"), number("SchedulerPort")), (host, port))
    rank, master = number("RANK"), (variable("MASTER_ADDR"), number("MASTER_PORT"))
    expect("RANK", 0 <= rank < number("WORLD_SIZE"), True)
    return Contract([master[1]] if rank == 0 else [], [(host, port), master])


def standalone():
    # Nobody is told of anybody.
    ours = {"TRAINYARD_JOB", "TRAINYARD_ROLE", "TRAINYARD_INDEX"}
    told = [name for name, value in os.environ.items() if JOB in value and name not in ours | {"HOSTNAME"}]
    expect("variables about the job", told, [])
    return Contract([], [])


def custom():
    expect("MODULE and INDEX", (variable("MODULE"), number("INDEX")), (ROLE, INDEX))
    hosts = [host for role in ("server", "worker") for host in variable(role).split(",")]
    # The framework knows no ports: they are the user's.
    return Contract([7000], [(host, 7000) for host in hosts])


CONTRACTS = {
    "bagua": bagua,
    "custom": custom,
    "dask": dask,
    "deepspeed": torchrun,
    "jax": jax,
    "mxnet": mxnet,
    "paddle": paddle,
    "pytorch": torchrun,
    "standalone": standalone,
    "tensorflow": tensorflow,
    "xgboost": xgboost,
}


def again(what, attempt):
    """Tries until it succeeds, and prints why it does not when that changes. The test gives up."""
    last = None
    while True:
        try:
            return attempt()
        except OSError as error:
            if str(error) != last:
                last = str(error)
                print(f"{what}: {last}", flush=True)
            time.sleep(0.2)


def find_behind(service, hosts):
    """Waits until the Service leads to all these hosts."""

    def look():
        found = set(socket.gethostbyname_ex(service)[2])
        missing = {host for host in hosts if socket.gethostbyname(host) not in found}
        if missing:
            raise OSError(f"does not lead to {sorted(missing)}")

    again(service, look)


class Server:
    def __init__(self, ports):
        self.done, self.changed = set(), threading.Condition()
        for port in ports:
            listener = socket.create_server(("0.0.0.0", port), backlog=64)
            threading.Thread(target=self.accept, args=(listener,), daemon=True).start()

    def accept(self, listener):
        while True:
            caller, _ = listener.accept()
            threading.Thread(target=self.answer, args=(caller,), daemon=True).start()

    def answer(self, caller):
        with caller, caller.makefile("rw") as lines:
            word = lines.readline().split()
            print(NAME, file=lines, flush=True)
            # It has read the answer when it closes.
            lines.read()
        if word[:1] == ["done"]:
            with self.changed:
                self.done.add(word[1])
                self.changed.notify_all()

    def wait_for(self, callers):
        with self.changed:
            self.changed.wait_for(lambda: len(self.done) >= callers)


def call(peer, word):
    """Sends a word to a peer. Returns its name."""

    def attempt():
        with socket.create_connection(peer, timeout=20) as connection, connection.makefile("rw") as lines:
            print(word, NAME, file=lines, flush=True)
            name = lines.readline().strip()
            if not name:
                raise OSError("closed without an answer")
            return name

    name = again(f"{peer[0]}:{peer[1]}", attempt)
    expect(f"the name of {peer[0]}", name, NAME if is_ip(peer[0]) else peer[0].split(".")[0])
    return name


def is_ip(host):
    try:
        ipaddress.ip_address(host)
        return True
    except ValueError:
        return False


def main():
    # The first process of a container has no default for it.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    contract = CONTRACTS[sys.argv[1]]()
    server = Server(contract.serves)
    reached = {call(peer, "hello"): peer for peer in contract.told}
    for name, peer in reached.items():
        if name != NAME:
            call(peer, "done")
    print("reached", *sorted(name.removeprefix(f"{JOB}-") for name in reached), flush=True)
    server.wait_for(int(os.environ["CALLERS"].split(",")[INDEX]))
    print("all who know this pod have reached it", flush=True)
    if os.environ.get("STAYS") == "1":
        signal.pause()


main()
