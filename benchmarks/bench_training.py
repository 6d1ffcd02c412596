"""Training pairs a second beside sentence-transformers' CrossEncoderTrainer, in the same precision and in defaults.

python benchmarks/bench_training.py [ROUNDS]
"""

from __future__ import annotations

import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median

import torch
from common import (
    Ratio,
    alternate,
    first_pools,
    forward_flops,
    in_fresh_process,
    matmul_peak,
    num_cores,
    print_shares,
    print_table,
    text_pairs,
    write_token_files,
)
from training_runs import mean_length, ray_and_deepspeed, sentence_transformers, training_job

from icalib.data.encoding import TokenStore
from icalib.models.precision import Precision, resolve_precision

NUM_POOLS = 60
ROUNDS = 3
_SPECIAL_TOKENS = 3  # [CLS], and a [SEP] after each text
_PASSES = 3  # a backward pass costs two forward passes


def main() -> None:
    """Train in turn."""
    pairs, labels = text_pairs(first_pools(NUM_POOLS))
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder)
        write_token_files(tokens, 1)  # loads the tokenizer, which the others' start-up does, too
        started = time.perf_counter()
        write_token_files(tokens, NUM_POOLS)
        tokenising = time.perf_counter() - started
        length = mean_length(TokenStore(tokens / "train.arrow"))
        default = resolve_precision("auto", torch.device("cpu"))
        peaks = {each: in_fresh_process(matmul_peak, each, num_cores()) for each in {"fp32", default}}

        def like_theirs(precision: Precision) -> float:
            rate = ray_and_deepspeed(training_job(tokens, precision))
            return len(pairs) / (len(pairs) / rate + tokenising)

        contestants = {
            "icalib fp32": partial(like_theirs, "fp32"),
            "sentence-transformers fp32": partial(sentence_transformers, pairs, labels, bf16=False),
        }
        ratios = [Ratio("icalib fp32", "sentence-transformers fp32", "≥ 1.8")]
        if default == "bf16":  # the default is fp32 where bf16 is emulated, and eight times slower
            contestants |= {
                "icalib bf16": partial(like_theirs, "bf16"),
                "sentence-transformers bf16": partial(sentence_transformers, pairs, labels, bf16=True),
            }
            ratios += [
                Ratio("icalib bf16", "sentence-transformers bf16", "≥ 1.8"),
                Ratio("icalib bf16", "sentence-transformers fp32", "≥ 3: the defaults of both"),
            ]
        figures = alternate(contestants, int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
    print_table(
        f"Training: {len(pairs)} pairs of {length:.0f} tokens, batches of 16, {num_cores()} threads, dropout 0.1,\n"
        "tokenising counted on both sides, start-up on neither; sentence-transformers shuffles and pads to a batch's\n"
        f"longest, icalib batches by length. Defaults here: {default}; theirs: fp32.",
        "pairs/s",
        figures,
        ratios,
    )
    flops = _PASSES * forward_flops(length + _SPECIAL_TOKENS)
    print_shares(
        {
            name: median(rates) * flops / peaks["bf16" if name.endswith("bf16") else "fp32"]
            for name, rates in figures.items()
        }
    )


if __name__ == "__main__":
    main()
