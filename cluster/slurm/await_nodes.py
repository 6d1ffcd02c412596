"""Wait until the Ray cluster at RAY_ADDRESS has a number of nodes: `await_nodes.py NODES SECONDS`."""

from __future__ import annotations

import logging
import os
import sys
import time

import ray


def num_alive(address: str) -> int:
    """Return the number of live nodes; 0 while the head does not answer."""
    try:
        ray.init(address=address, logging_level=logging.CRITICAL, log_to_driver=False)
        return sum(node["Alive"] for node in ray.nodes())
    except ConnectionError:
        return 0
    finally:
        ray.shutdown()


def main() -> None:
    """Poll until all nodes have joined, and exit with an error after the timeout."""
    nodes, seconds = int(sys.argv[1]), float(sys.argv[2])
    deadline = time.monotonic() + seconds
    while (alive := num_alive(os.environ["RAY_ADDRESS"])) < nodes:
        if time.monotonic() > deadline:
            sys.exit(
                f"{alive} of {nodes} Ray nodes have joined after {seconds:.0f} s; see the output of `ray start` above."
            )
        time.sleep(2)


if __name__ == "__main__":
    main()
