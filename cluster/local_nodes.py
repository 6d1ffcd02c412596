"""Run several Ray nodes on this machine until SIGTERM or SIGINT; `cluster/local.sh` starts and stops this process.

`ray start` refuses a second node on loopback, so this uses the utility of Ray's own tests. It prints one line, the
head's address, when all nodes are up. Ray writes its files to the folder RAY_TMPDIR.
"""

from __future__ import annotations

import argparse
import contextlib
import signal

import psutil
from ray.cluster_utils import Cluster

_OBJECT_STORE_BYTES = 256 * 2**20


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, required=True, help="number of worker nodes besides the head")
    parser.add_argument("--cpus", type=int, required=True, help="CPUs of each worker node; the head has none")
    parser.add_argument("--port", type=int, required=True, help="port of the head")
    parser.add_argument("--dashboard-port", type=int, required=True, help="port of the dashboard, for jobs")
    return parser.parse_args()


def main() -> None:
    """Start the nodes, print the head's address, wait for a signal and stop them."""
    options = arguments()
    # By default every node would offer the whole machine's memory. The head, where nothing runs, offers next to none:
    # a job that asks for more than any node has would wait forever.
    memory = psutil.virtual_memory().available // options.nodes - _OBJECT_STORE_BYTES
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 0,
            "gcs_server_port": options.port,
            "include_dashboard": True,
            "dashboard_host": "127.0.0.1",
            "dashboard_port": options.dashboard_port,
            "dashboard_agent_listen_port": 0,  # any free port: another Ray on this machine may use the default
            "memory": 2**20,
            "object_store_memory": _OBJECT_STORE_BYTES,
        },
    )
    for node in range(1, options.nodes + 1):
        # The nodes use the same session folder; without folders of their own they would overwrite each other's code.
        cluster.add_node(
            num_cpus=options.cpus,
            memory=memory,
            object_store_memory=_OBJECT_STORE_BYTES,
            runtime_env_dir_name=f"runtime_resources_{node}",
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as for Ctrl-C; starting a node replaces the handler
    print(cluster.address, flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()
    cluster.shutdown()


if __name__ == "__main__":
    main()
