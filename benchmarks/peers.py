"""What people use today, beside icalib, on the same pools: sentence-transformers' bi-encoder and cross-encoder.

    make peers PEERS='pools/mine --labelled 0.03 --seeds 3 --limit validation=300 test=800'

Every peer is fine-tuned from the same backbone on the same labelled pools, by its trainer's defaults and with the
epochs and learning rate that rank the validation pools best. A second bi-encoder learns from the dialogues first, as
icalib's rankers do. Each is then a run of `external:`, whose scores are Platt-scaled on validation like those of every
row.
"""

from __future__ import annotations

import argparse
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
from icalib.data.selection import Limit, Selection, Subset

if TYPE_CHECKING:
    from icalib.data.schema import Pool, Split

UNTRAINED = ("bm25", "bi-encoder", "dual-encoder")
KINDS = ("bi-encoder", "cross-encoder", "bi-encoder-dialogues")
MAX_TOKENS = 512
_NOTE = "peer.json"


def main() -> None:
    """Train the peers for each seed, and evaluate them and icalib's methods."""
    given = _arguments()
    limit: Limit = {split: int(size) for split, size in (one.split("=") for one in given.limit)}
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
        for kind in KINDS:
            folder = given.runs / "models" / f"{given.pools.name}-{given.labelled:g}-s{seed}"
            trials = [
                _trained(folder, kind, learning_rate, epochs, given, limit, seed)
                for epochs, learning_rate in product(given.epochs, given.learning_rates)
            ]
            best = max(trials, key=lambda model: read_json(model / _NOTE)["MAP"])
            for model in dict.fromkeys((trials[0], best)):
                print(f"{model.name}: {read_json(model / _NOTE)}")
                print(icalib.run(f"external:{model}", given.pools, seed=seed, **common))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pools", type=Path, help="pool folder of `icalib prepare`")
    parser.add_argument("--labelled", type=float, required=True, help="fraction of the training pools")
    parser.add_argument("--seeds", type=int, default=3, help="each draws its own labelled pools")
    parser.add_argument("--limit", nargs="*", default=[], help="e.g. validation=300 test=800")
    parser.add_argument("--epochs", type=int, nargs="*", default=[3, 1, 10], help="first the trainers' default")
    parser.add_argument("--learning-rates", type=float, nargs="*", default=[5e-5, 2e-5], help="first their default")
    parser.add_argument("--windows", type=int, default=4000, help="pairs of context and reply of the dialogues")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    return parser.parse_args()


def _trained(
    folder: Path, kind: str, learning_rate: float, epochs: int, given: argparse.Namespace, limit: Limit, seed: int
) -> Path:
    """Fine-tune one peer, unless it is there already; return its folder, which says how well it ranks."""
    start = BACKBONE
    selection = Selection(labelled_fraction=given.labelled, limit=limit, label_seed=seed)
    if kind == "bi-encoder-dialogues":
        start = str(folder / "dialogues")
        if not Path(start).is_dir():
            pairs = partial(_replies, given.pools, selection, given.windows, seed)
            in_fresh_process(silently, _make, Path(start), partial(_bi_encoder, BACKBONE, pairs, 5e-5, 1, seed), None)
    model = folder / f"{kind}-{epochs}-epochs-{learning_rate:g}"
    labelled = partial(_pools, given.pools, "train", "labelled", selection)
    validation = partial(_pools, given.pools, "validation", "all", selection)
    train = (
        partial(_cross_encoder, labelled, learning_rate, epochs, seed)
        if kind == "cross-encoder"
        else partial(_bi_encoder, start, partial(_right_pairs, labelled), learning_rate, epochs, seed)
    )
    if not model.is_dir():
        in_fresh_process(silently, _make, model, train, validation)
    return model


def _make(path: Path, train: Callable[[], Any], validation: Callable[[], list[Pool]] | None) -> None:
    torch.set_num_threads(1)  # so that processor time is what it costs
    with atomic_dir(path) as folder:
        started = time.process_time()
        model = train()
        minutes = round((time.process_time() - started) / 60, 1)
        model.save_pretrained(str(folder))
        if validation is not None:  # read again: the trainer leaves a model that ranks in bf16, with many ties
            found = _mean_reciprocal_rank(type(model)(str(folder), device="cpu"), validation())
            write_json(folder / _NOTE, {"MAP": found, "minutes": minutes})


def _cross_encoder(pools: Callable[[], list[Pool]], learning_rate: float, epochs: int, seed: int) -> Any:
    from datasets import Dataset
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

    from icalib.encoders.backbone import backbone_path

    model = CrossEncoder(backbone_path(BACKBONE), num_labels=1, max_length=MAX_TOKENS, device="cpu")
    rows = [
        {"context": _text(pool), "candidate": candidate, "label": float(index in pool.right)}
        for pool in pools()
        for index, candidate in enumerate(pool.candidates)
    ]
    arguments = CrossEncoderTrainingArguments(**_trainer_settings(learning_rate, epochs, seed))
    CrossEncoderTrainer(
        model=model, args=arguments, train_dataset=Dataset.from_list(rows), loss=BinaryCrossEntropyLoss(model)
    ).train()
    return model


def _bi_encoder(
    start: str, pairs: Callable[[], list[tuple[str, str]]], learning_rate: float, epochs: int, seed: int
) -> Any:
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
    rows = [{"anchor": context, "positive": reply} for context, reply in pairs()]
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


def _mean_reciprocal_rank(model: Any, pools: Sequence[Pool]) -> float:
    """MAP of pools with one right candidate."""
    contexts = [_text(pool) for pool in pools for _ in pool.candidates]
    candidates = [candidate for pool in pools for candidate in pool.candidates]
    if hasattr(model, "encode_query"):
        vectors = model.encode_query(contexts), model.encode_document(candidates)
        scores = model.similarity_pairwise(*vectors).numpy()
    else:
        scores = model.predict([*zip(contexts, candidates, strict=True)])
    ends = np.cumsum([len(pool.candidates) for pool in pools])
    own = np.split(np.asarray(scores), ends[:-1])
    ranks = [
        (score > score[pool.label]).sum() + ((score == score[pool.label]).sum() + 1) / 2
        for pool, score in zip(pools, own, strict=True)
    ]
    return float(np.mean([1 / rank for rank in ranks]))


def _right_pairs(pools: Callable[[], list[Pool]]) -> list[tuple[str, str]]:
    return [(_text(pool), pool.candidates[pool.label]) for pool in pools()]


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
