"""Several Ray nodes on this machine, until SIGTERM or SIGINT; `cluster/local.sh` starts and stops it.

`ray start` refuses a second node on loopback, so this uses the utility that Ray tests itself with. Standard output gets
one line, the head's address, when all nodes are up. What Ray writes goes to the folder RAY_TMPDIR.
"""

from __future__ import annotations

import argparse
import contextlib
import signal

import psutil
from ray.cluster_utils import Cluster

_OBJECT_STORE_BYTES = 256 * 2**20


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, required=True, help="worker nodes beside the head")
    parser.add_argument("--cpus", type=int, required=True, help="CPUs of each worker node; the head has none")
    parser.add_argument("--port", type=int, required=True, help="where the head listens")
    parser.add_argument("--dashboard-port", type=int, required=True, help="where jobs are submitted")
    return parser.parse_args()


def main() -> None:
    """Start the nodes, say so, wait for a signal, stop them."""
    chosen = arguments()
    # Left to itself, each node would offer the whole machine's memory.
    memory = psutil.virtual_memory().available // (chosen.nodes + 1) - _OBJECT_STORE_BYTES
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 0,
            "gcs_server_port": chosen.port,
            "include_dashboard": True,
            "dashboard_host": "127.0.0.1",
            "dashboard_port": chosen.dashboard_port,
            "dashboard_agent_listen_port": 0,  # any: another Ray of this machine may have the usual one
            "memory": memory,
            "object_store_memory": _OBJECT_STORE_BYTES,
        },
    )
    for node in range(1, chosen.nodes + 1):
        # The nodes share a session's folder; in one folder of it they would unpack a job's code over one another's.
        cluster.add_node(
            num_cpus=chosen.cpus,
            memory=memory,
            object_store_memory=_OBJECT_STORE_BYTES,
            runtime_env_dir_name=f"runtime_resources_{node}",
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the same as Ctrl-C; each node had set its own handler
    print(cluster.address, flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()
    cluster.shutdown()


if __name__ == "__main__":
    main()
