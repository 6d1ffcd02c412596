"""What the benchmarks share: data, fresh processes, alternation and tables.

Heavy imports wait inside functions: a process that measures memory or start-up must not have them from here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

    from icalib.core.job import Artifact
    from icalib.data.schema import Pool, Split
    from icalib.models.precision import Precision
    from icalib.parts.job import ColumnJob
    from icalib.uncertainty.estimator import AbstractEstimator

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "runs" / "benchmarks"
BACKBONE = "minilm"
NUM_POOLS = 2500


class Ratio(NamedTuple):
    """How many times the figure of `other` the figure of `ours` is, and what is aimed at."""

    ours: str
    other: str
    goal: str = ""


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def dialogues() -> Path:
    """Real dialogues where they are at hand, else simulated ones."""
    real = Path(os.environ.get("ICALIB_DATA", ROOT.parent / "shared" / "data")) / "sgd.jsonl.gz"
    if real.is_file():
        return real
    made = WORK / "simulated.jsonl"
    if not made.is_file():
        from icalib.data.simulate import simulate

        simulate(made, num_dialogues=4000, seed=1)
    return made


def pool_folder() -> Path:
    """At most NUM_POOLS pools a split, prepared once and kept for the next benchmark."""
    from icalib.data.prepare import PrepareSettings, prepare

    folder = WORK / f"pools-{NUM_POOLS}"
    prepare(dialogues(), folder, PrepareSettings(limit=NUM_POOLS, labelled=1.0))
    return folder


def first_pools(num_pools: int, split: Split = "train") -> list[Pool]:
    """The first pools of a split."""
    from icalib.data.pools import as_pools, iter_pools

    pools = (pool for batch in iter_pools(pool_folder(), split) for pool in as_pools(batch))
    return list(islice(pools, num_pools))


def write_token_files(folder: Path, num_pools: int) -> None:
    """Token files of the first training and validation pools."""
    from icalib.data.encoding import Budget, write_tokens
    from icalib.data.pools import read_pool_set
    from icalib.encoders.backbone import Tokenizer

    folder.mkdir(parents=True, exist_ok=True)
    intents, tokenize = read_pool_set(pool_folder()).intents, Tokenizer(BACKBONE)
    for split in ("train", "validation"):
        write_tokens(folder / f"{split}.arrow", [first_pools(num_pools, split)], tokenize, intents, Budget())


def score_job(
    folder: Path,
    estimator: AbstractEstimator.Config,
    *,
    precision: Precision = "auto",
    pools_per_shard: int,
    max_tokens_per_batch: int = 8192,
) -> ColumnJob:
    """The scoring of all pools of a folder's train.arrow by the model in its folder checkpoint."""
    from icalib.data.selection import Selection
    from icalib.parts.job import ColumnJob

    return ColumnJob(
        part="cross",
        model=made_here(folder / "checkpoint"),
        tokens=made_here(folder / "train.arrow"),
        selection=Selection(labelled_fraction=1.0),
        split="train",
        of="all",
        estimator=estimator,
        with_intents=False,
        precision=precision,
        max_tokens_per_batch=max_tokens_per_batch,
        pools_per_shard=pools_per_shard,
        seed=1,
    )


def made_here(path: Path) -> Artifact:
    """A file or folder of the benchmark as a job's input; its place is its identity."""
    from icalib.core.job import Artifact

    return Artifact(path=path, digest=str(path))


def text_pairs(pools: Sequence[Pool]) -> tuple[list[tuple[str, str]], list[float]]:
    """(context, candidate) texts and labels, as sentence-transformers takes them."""
    pairs = [(" ".join(u.text for u in pool.context), candidate) for pool in pools for candidate in pool.candidates]
    labels = [float(place == pool.label) for pool in pools for place in range(len(pool.candidates))]
    return pairs, labels


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a new interpreter, so that no contestant finds caches or memory that another one left."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        return executor.submit(function, *arguments).result()


def silently(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function whose prints are no part of the tables; its errors still come through."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        return function(*arguments)


def alternate(contestants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Measure the contestants in turn, so that a slow spell of the machine hits all of them; print each figure."""
    figures: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(1, rounds + 1):
        for name, measure in contestants.items():
            figures[name].append(measure())
            print(f"    round {number}, {name}: {figures[name][-1]:.2f}", flush=True)
    return figures


def matmul_peak(precision: Precision, threads: int) -> float:
    """Return the FLOP/s of the machine's own matrix products, of the shapes of a backbone's largest layer."""
    import torch

    torch.set_num_threads(threads)
    return product_rate((2048, 384, 1536), torch.bfloat16 if precision == "bf16" else torch.float32, rounds=200)


def product_rate(
    shape: tuple[int, int, int], dtype: torch.dtype, device: str = "cpu", *, rounds: int, products: int = 1
) -> float:
    """Return the best FLOP/s of some rounds of matrix products."""
    import torch

    tokens, inner, outer = shape
    left = torch.randn(tokens, inner, dtype=dtype, device=device)
    right = torch.randn(inner, outer, dtype=dtype, device=device)
    rates: list[float] = []
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in range(products):
            _ = left @ right
        wait(device)
        rates.append(2 * products * tokens * inner * outer / (time.perf_counter() - started))
    return max(rates)


def wait(device: str) -> None:
    """Wait until a GPU has computed everything that it was given."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def forward_flops(num_tokens: float) -> float:
    """Return the FLOPs of a forward pass over a sequence: linear layers, and attention over all pairs of its tokens."""
    from icalib.encoders.backbone import load_config

    config = load_config(BACKBONE)
    width = config.hidden_size
    linear = 4 * width**2 + 2 * width * config.intermediate_size
    return config.num_hidden_layers * (2 * linear * num_tokens + 4 * width * num_tokens**2)


def print_shares(shares: Mapping[str, float]) -> None:
    """Print which fraction of the machine's matrix products each contestant reaches, by its median."""
    for name, share in shares.items():
        print(f"  {name}: {share:.2f} of the matmul peak", flush=True)


def print_table(title: str, unit: str, figures: Mapping[str, Sequence[float]], ratios: Sequence[Ratio]) -> None:
    """Median and range of each contestant, and of the ratios within a round."""
    print(f"\n{title}")
    for name, values in figures.items():
        print(f"  {name:<46}{_spread(values)} {unit}")
    for ours, other, goal in ratios:
        shares = [a / b for a, b in zip(figures[ours], figures[other], strict=True)]
        print(f"  {ours} / {other}: {_spread(shares).strip()}{f'   (goal {goal})' if goal else ''}", flush=True)


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):9.2f} ({min(values):.2f} to {max(values):.2f})"
