"""What people use today, beside icalib, on the same pools: sentence-transformers' bi-encoder and cross-encoder.

    make peers PEERS='pools/mine --labelled 0.03 --seeds 3 --limit validation=300 test=800'

Every peer is fine-tuned from the same backbone on the same labelled pools, once by its trainer's defaults and once with
the epochs and learning rate that rank the validation pools best. The bi-encoder also learns from the dialogues first,
as icalib's rankers do. Each is then a run of `external:`, whose scores are Platt-scaled on the validation pools like
those of every row.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from common import BACKBONE, in_fresh_process, silently

from icalib.core.files import atomic_dir, read_json, write_json
from icalib.data.selection import Selection, Subset

if TYPE_CHECKING:
    from icalib.data.schema import Pool, Split

UNTRAINED = ("bm25", "bi-encoder", "dual-encoder")
DEFAULTS = (5e-5, 3)
"""Learning rate and epochs of both trainers."""
TUNED = tuple(product((2e-5, 5e-5), (1, 3, 10)))
MAX_TOKENS = 512


def main() -> None:
    """Train the peers for each seed, and evaluate them and icalib's methods."""
    given = _arguments()
    limit: dict[Any, int] = {split: int(size) for split, size in (one.split("=") for one in given.limit)}
    common: Mapping[str, Any] = {
        "labelled": given.labelled,
        "limit": limit,
        "resample_labels": True,
        "executor": "local",
        "runs": given.runs,
        "experiment": "peers",
    }
    import icalib

    for method in UNTRAINED:
        print(icalib.run(method, given.pools, **common))
    for seed in range(1, given.seeds + 1):
        for name, how in _peers(given, limit, seed).items():
            model = given.runs / "models" / f"{given.pools.name}-{given.labelled:g}-s{seed}" / name
            if not model.is_dir():
                in_fresh_process(silently, _make, model, how)
            print(f"{name}, seed {seed}: {read_json(model / 'peer.json')['trials']}")
            print(icalib.run(f"external:{model}", given.pools, seed=seed, **common))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pools", type=Path, help="pool folder of `icalib prepare`")
    parser.add_argument("--labelled", type=float, required=True, help="fraction of the training pools")
    parser.add_argument("--seeds", type=int, default=3, help="each draws its own labelled pools")
    parser.add_argument("--limit", nargs="*", default=[], help="e.g. validation=300 test=800")
    parser.add_argument("--windows", type=int, default=4000, help="pairs of context and reply of the dialogues")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    return parser.parse_args()


def _peers(given: argparse.Namespace, limit: Mapping[Any, int], seed: int) -> dict[str, Any]:
    """How each peer is made, by its name."""
    selection = Selection(labelled_fraction=given.labelled, limit=dict(limit), label_seed=seed)
    labelled = partial(_pools, given.pools, "train", "labelled", selection)
    validation = partial(_pools, given.pools, "validation", "all", selection)
    dialogues = partial(_replies, given.pools, selection, given.windows, seed)
    return {
        f"{kind}-{tuning}": partial(_choose, kind, grid, labelled, validation, first, seed)
        for kind, first in (("bi-encoder", None), ("bi-encoder-dialogues", dialogues), ("cross-encoder", None))
        for tuning, grid in (("defaults", [DEFAULTS]), ("tuned", TUNED))
    }


def _make(model: Path, how: Callable[[Path], dict[str, Any]]) -> None:
    with atomic_dir(model) as folder:
        write_json(folder / "peer.json", how(folder))


def _choose(
    kind: str,
    grid: Sequence[tuple[float, int]],
    labelled: Callable[[], list[Pool]],
    validation: Callable[[], list[Pool]],
    dialogues: Callable[[], list[tuple[str, str]]] | None,
    seed: int,
    folder: Path,
) -> dict[str, Any]:
    """Train one model per setting; keep the one that ranks the validation pools best."""
    torch.set_num_threads(1)  # so that processor time is what it costs
    pools, judged = labelled(), validation()
    start, trials = BACKBONE, list[dict[str, Any]]()
    started = time.process_time()
    if dialogues is not None:
        start = str(folder / "dialogues")
        _bi_encoder(BACKBONE, dialogues(), DEFAULTS[0], 1, seed).save_pretrained(start)
    first = time.process_time() - started
    for learning_rate, epochs in grid:
        started = time.process_time()
        if kind == "cross-encoder":
            model = _cross_encoder(pools, learning_rate, epochs, seed)
            rank = partial(_mean_reciprocal_rank, lambda pairs, model=model: model.predict(pairs))
        else:
            pairs = [(_text(pool), pool.candidates[pool.label]) for pool in pools]
            model = _bi_encoder(start, pairs, learning_rate, epochs, seed)
            rank = partial(_mean_reciprocal_rank, partial(_cosines, model))
        minutes = (time.process_time() - started + first) / 60
        found = rank(judged) if len(grid) > 1 else 0.0
        if not trials or found > max(trial["MAP"] for trial in trials):
            model.save_pretrained(str(folder))
        trials.append({"learning_rate": learning_rate, "epochs": epochs, "MAP": found, "minutes": round(minutes, 1)})
    shutil.rmtree(folder / "dialogues", ignore_errors=True)
    return {"trials": trials}


def _cross_encoder(pools: Sequence[Pool], learning_rate: float, epochs: int, seed: int) -> Any:
    from datasets import Dataset
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

    from icalib.encoders.backbone import backbone_path

    model = CrossEncoder(backbone_path(BACKBONE), num_labels=1, max_length=MAX_TOKENS, device="cpu")
    rows = [
        {"context": _text(pool), "candidate": candidate, "label": float(index in pool.right)}
        for pool in pools
        for index, candidate in enumerate(pool.candidates)
    ]
    arguments = CrossEncoderTrainingArguments(**_trainer_settings(learning_rate, epochs, seed))
    CrossEncoderTrainer(
        model=model, args=arguments, train_dataset=Dataset.from_list(rows), loss=BinaryCrossEntropyLoss(model)
    ).train()
    return model


def _bi_encoder(start: str, pairs: Sequence[tuple[str, str]], learning_rate: float, epochs: int, seed: int) -> Any:
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    from icalib.encoders.off_the_shelf import model_folder

    model = SentenceTransformer(str(model_folder(start)), device="cpu")
    model.max_seq_length = MAX_TOKENS
    rows = [{"anchor": context, "positive": reply} for context, reply in pairs]
    SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(**_trainer_settings(learning_rate, epochs, seed)),
        train_dataset=Dataset.from_list(rows),
        loss=MultipleNegativesRankingLoss(model),
    ).train()
    return model


def _trainer_settings(learning_rate: float, epochs: int, seed: int) -> dict[str, Any]:
    return {
        "output_dir": gettempdir(),
        "num_train_epochs": epochs,
        "learning_rate": learning_rate,
        "seed": seed,
        "bf16": "avx512_bf16" in Path("/proc/cpuinfo").read_text(encoding="utf-8"),
        "use_cpu": True,
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }


def _cosines(model: Any, pairs: Sequence[tuple[str, str]]) -> Any:
    contexts, candidates = zip(*pairs, strict=True)
    return model.similarity_pairwise(model.encode_query(contexts), model.encode_document(candidates)).numpy()


def _mean_reciprocal_rank(score: Callable[[Any], Any], pools: Sequence[Pool]) -> float:
    """MAP of pools with one right candidate."""
    scores = np.asarray(score([(_text(pool), candidate) for pool in pools for candidate in pool.candidates]))
    ends = np.cumsum([len(pool.candidates) for pool in pools])
    own = np.split(scores, ends[:-1])
    ranks = [1 + int((logit > logit[pool.label]).sum()) for pool, logit in zip(pools, own, strict=True)]
    return float(np.mean([1 / rank for rank in ranks]))


def _text(pool: Pool) -> str:
    """A context as `external:` rankers are given it."""
    return "\n".join(utterance.text for utterance in pool.context)


def _pools(data: Path, split: Split, part: Subset, selection: Selection) -> list[Pool]:
    from icalib.data.pools import as_pools, iter_pools, read_column

    wanted = {*selection.rows(split, part, read_column(data, split, "label_order")).tolist()}
    pools = (pool for batch in iter_pools(data, split) for pool in as_pools(batch))
    return [pool for row, pool in enumerate(pools) if row in wanted and pool.label >= 0]


def _replies(data: Path, selection: Selection, number: int, seed: int) -> list[tuple[str, str]]:
    """Contexts and replies within the training pools' contexts: what the dialogues say without labels."""
    found: dict[tuple[str, str], None] = {}
    for pool in _pools(data, "train", "all", selection):
        texts = [utterance.text for utterance in pool.context]
        found.update({("\n".join(texts[:turn]), texts[turn]): None for turn in range(1, len(texts))})
    every = [*found]
    chosen = np.random.default_rng(seed).permutation(len(every))[:number]
    return [every[index] for index in chosen.tolist()]


if __name__ == "__main__":
    main()
