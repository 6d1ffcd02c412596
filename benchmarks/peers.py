"""What people use today, beside icalib, on the same pools: sentence-transformers' bi-encoder and cross-encoder.

    make peers PEERS='pools/mine --labelled 0.03 --seeds 3 --limit validation=300 test=800'

Every peer is fine-tuned from the same backbone on the same labelled pools: by its trainer's defaults, and with other
epochs and learning rates, of which the best on validation is named. A second bi-encoder learns from the dialogues
first, as icalib's rankers do. Each is then a run of `external:`, calibrated on validation like every row.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain, product
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from common import BACKBONE, in_fresh_process, silently

from icalib.core.files import atomic_dir, read_json, write_json
from icalib.data.pools import as_pools, iter_pools
from icalib.data.selection import Limit, Selection
from icalib.data.splits import text_key
from icalib.models.precision import resolve_precision

if TYPE_CHECKING:
    from icalib.data.schema import Pool

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
        selection = Selection(labelled_fraction=given.labelled, limit=limit, label_seed=seed)
        folder = given.runs / "models" / f"{given.pools.name}-{given.labelled:g}-s{seed}"
        for kind in KINDS:
            found: dict[str, float] = {}
            for epochs, learning_rate in product(given.epochs, given.learning_rates):
                model = folder / f"{kind}-{epochs}-epochs-{learning_rate:g}"
                _train(model, kind, given, selection, learning_rate, epochs, seed)
                run = icalib.run(f"external:{model}", given.pools, seed=seed, **common)
                found[model.name] = run.result["validation"]["MAP"]
                print(run, f"{read_json(model / _NOTE)['minutes']} minutes of training", sep="\n")
            print(f"{max(found, key=lambda name: found[name])} ranks the validation pools best: {found}")


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


def _train(
    model: Path,
    kind: str,
    given: argparse.Namespace,
    selection: Selection,
    learning_rate: float,
    epochs: int,
    seed: int,
) -> None:
    """Fine-tune one peer, unless it is there already."""
    start = BACKBONE
    if kind == "bi-encoder-dialogues":
        start = str(model.parent / "dialogues")
        replies = partial(_replies, given.pools, selection, given.windows, seed)
        _make(Path(start), partial(bi_encoder, BACKBONE, replies, given.learning_rates[0], 1, seed))
    labelled = partial(_pools, given.pools, selection, "labelled")
    if kind == "cross-encoder":
        _make(model, partial(_cross_encoder, labelled, learning_rate, epochs, seed))
    else:
        _make(model, partial(bi_encoder, start, partial(right_pairs, labelled), learning_rate, epochs, seed))


def _make(model: Path, train: Callable[[], Any]) -> None:
    if not model.is_dir():
        in_fresh_process(silently, _save, model, train)


def _save(path: Path, train: Callable[[], Any]) -> None:
    torch.set_num_threads(1)  # so that processor time is what it costs
    with atomic_dir(path) as folder:
        started = time.process_time()
        train().save_pretrained(str(folder))
        write_json(folder / _NOTE, {"minutes": round((time.process_time() - started) / 60, 1)})


def _cross_encoder(pools: Callable[[], list[Pool]], learning_rate: float, epochs: int, seed: int) -> Any:
    from datasets import Dataset
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

    from icalib.encoders.backbone import backbone_path

    model = CrossEncoder(backbone_path(BACKBONE), num_labels=1, max_length=MAX_TOKENS)
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


def bi_encoder(
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

    model = SentenceTransformer(str(model_folder(start)))
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
        "bf16": resolve_precision("auto", torch.device("cuda" if torch.cuda.is_available() else "cpu")) == "bf16",
        "use_cpu": not torch.cuda.is_available(),
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }


def right_pairs(pools: Callable[[], list[Pool]]) -> list[tuple[str, str]]:
    return [(_text(pool), pool.candidates[pool.label]) for pool in pools()]


def _text(pool: Pool) -> str:
    """A context as `external:` rankers are given it."""
    return "\n".join(utterance.text for utterance in pool.context)


def _pools(data: Path, selection: Selection, part: Literal["labelled", "all"]) -> list[Pool]:
    from icalib.generation.retrieval import training_pools, training_rows

    return list(training_pools(data, training_rows(data, selection, part)))


def _replies(data: Path, selection: Selection, number: int, seed: int) -> list[tuple[str, str]]:
    """Contexts and replies within the training pools' contexts, as icalib's domain pre-training may read them.

    Replies that are candidates of the dialogue's own pools, or of any pool after the same utterance, are left out.
    """
    pools, dialogues = _pools(data, selection, "all"), set[tuple[str, int]]()
    answers = set[tuple[int, int]]()
    held_out = (pool for split in ("validation", "test") for rows in iter_pools(data, split) for pool in as_pools(rows))
    for pool in chain(pools, held_out):
        last, keys = text_key(pool.context[-1].text), [text_key(candidate) for candidate in pool.candidates]
        answers.update((last, key) for key in keys)
        dialogues.update((pool.dialog_id, key) for key in keys)
    found: dict[tuple[str, str], None] = {}
    for pool in pools:
        texts = [utterance.text for utterance in pool.context]
        for turn in range(1, len(texts)):
            before, reply = text_key(texts[turn - 1]), text_key(texts[turn])
            if (before, reply) not in answers and (pool.dialog_id, reply) not in dialogues:
                found["\n".join(texts[:turn]), texts[turn]] = None
    every = [*found]
    chosen = np.random.default_rng(seed).permutation(len(every))[:number]
    return [every[index] for index in chosen.tolist()]


if __name__ == "__main__":
    main()
