"""BM25 mining: queries a second, beside rank_bm25's get_scores and a sort."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from common import NUM_POOLS, Ratio, alternate, first_pools, print_table
from rank_bm25 import BM25Okapi

from icalib.data.bm25 import tokenize
from icalib.data.negatives import mine_block, query_blocks, write_index

NUM_NEGATIVES = 9
PLAIN_QUERIES = 60
ROUNDS = 3
OURS, PLAIN = "icalib's mining, 1 process", "rank_bm25 get_scores + argsort"


def main() -> None:
    """Mine in turn, from the same responses."""
    pools = first_pools(NUM_POOLS)
    responses = [pool.candidates[pool.label] for pool in pools]
    _, dialogues = np.unique([pool.dialog_id for pool in pools], return_inverse=True)
    tokens = [tokenize(response) for response in responses]
    okapi = BM25Okapi(tokens)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        write_index(Path(folder), responses, dialogues, np.arange(len(responses)), "bm25-response")
        building = time.perf_counter() - started
        blocks = query_blocks(
            Path(folder), len(responses), sampler="bm25-response", num_negatives=NUM_NEGATIVES, seed=1
        )

        def ours() -> float:
            started = time.perf_counter()
            for block in blocks:
                mine_block(block)
            return len(responses) / (time.perf_counter() - started)

        def plain() -> float:
            started = time.perf_counter()
            for query in tokens[:: len(tokens) // PLAIN_QUERIES][:PLAIN_QUERIES]:
                np.argsort(-okapi.get_scores(query))[: NUM_NEGATIVES + 1]
            return PLAIN_QUERIES / (time.perf_counter() - started)

        figures = alternate({OURS: ours, PLAIN: plain}, ROUNDS)
    title = (
        f"Mining {NUM_NEGATIVES} negatives among {len(responses)} responses; index not counted (ours {building:.1f} s)"
    )
    print_table(title, "queries/s", figures, [Ratio(OURS, PLAIN)])


if __name__ == "__main__":
    main()
