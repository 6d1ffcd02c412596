"""Scoring on one, two and four nodes of one core each, one thread a task: how much of the others arrives."""

from __future__ import annotations

import os
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from common import Ratio, alternate, in_fresh_process, num_cores, print_table, score_job, write_token_files

NUM_POOLS = 64  # enough shards that the last ones, when a node may have none left, weigh little
NUM_PASSES = 3
POOLS_PER_SHARD = 2
ROUNDS = 1
NODES = (1, 2, 4)  # more nodes than cores can't be faster, but shouldn't be slower either
EFFICIENCY = 0.95
MEMORY = 100 * 2**20


def main() -> None:
    """Score in turn on clusters of more and more nodes."""
    from icalib.models.checkpoint import RankerConfig, save_ranker
    from icalib.models.ranker import Ranker
    from icalib.uncertainty.estimator import MCDropout

    if num_cores() < 2:
        print("\nNodes: two nodes need two cores; nothing was measured.")
        return
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_token_files(work, NUM_POOLS)
        config = RankerConfig()
        save_ranker(work / "checkpoint", config, Ranker(config).state_dict())
        job = score_job(
            work, MCDropout.Config(num_passes=NUM_PASSES), precision="fp32", pools_per_shard=POOLS_PER_SHARD
        )
        fields = job.model_dump_json()
        figures = alternate(
            {f"{nodes} nodes": partial(in_fresh_process, _shards_a_second, fields, nodes) for nodes in NODES}, ROUNDS
        )
    print_table(
        f"Nodes of one core, {num_cores()} cores in all: {NUM_POOLS // POOLS_PER_SHARD} shards of {POOLS_PER_SHARD} "
        f"pools, {NUM_PASSES} dropout passes; warm.",
        "shards/s",
        figures,
        [
            Ratio(f"{nodes} nodes", "1 nodes", f"≥ {EFFICIENCY * min(nodes, num_cores()):.2f}, {EFFICIENCY} a core")
            for nodes in NODES[1:]
        ],
    )


def _shards_a_second(fields: str, num_nodes: int) -> float:
    """Shards a second by a cluster whose nodes have loaded the model."""
    from icalib.core.events import ignore
    from icalib.data.selection import Selection
    from icalib.distributed import session
    from icalib.distributed.executor import map_shards
    from icalib.parts.job import ColumnJob

    job = ColumnJob.model_validate_json(fields)
    few = Selection(labelled_fraction=1.0, limit={"train": 8 * num_nodes})
    with tempfile.TemporaryDirectory(prefix="nodes-") as temporary:
        os.environ.update(session.LOCAL_ENVIRONMENT, RAY_TMPDIR=temporary)
        cluster = _cluster(num_nodes)
        session.start(cluster.address)
        try:
            resources = session.available()
            with tempfile.TemporaryDirectory() as folder:
                warm_up = job.model_copy(update={"selection": few, "pools_per_shard": 1})
                map_shards(warm_up, Path(folder), resources, "scores", ignore)
            with tempfile.TemporaryDirectory() as folder:
                started = time.perf_counter()
                map_shards(job, Path(folder), resources, "scores", ignore)
                return NUM_POOLS / POOLS_PER_SHARD / (time.perf_counter() - started)
        finally:
            session.stop()
            cluster.shutdown()


def _cluster(num_nodes: int) -> Any:
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": MEMORY}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(num_nodes):
        cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
    cluster.wait_for_nodes()
    return cluster


if __name__ == "__main__":
    main()
