"""Scores and predictions of methods without training, a Ray task for each split."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from icalib.calibration.calibrator import Platt
from icalib.calibration.fitted import AffineMap, FittedMap, prob_logit
from icalib.core.errors import DataError
from icalib.core.run_folder import PREDICTION_SCHEMA
from icalib.core.storage import local_path, location, pull
from icalib.data.encoding import Budget, TokenPool
from icalib.data.pools import as_pools, iter_pools, read_rows
from icalib.data.schema import Pool, Split
from icalib.data.selection import Selection
from icalib.distributed.session import parallel_map
from icalib.encoders.backbone import Tokenizer
from icalib.methods.composition import Untrained
from icalib.regimes.untrained import Floats, bi_encoder_scores, bm25_scores

Task = tuple[str, Split, Untrained, Selection]
Scored = tuple[list[str], list[int], list[Floats]]


def score_untrained(
    data: Path, splits: Sequence[Split], method: Untrained, selection: Selection
) -> dict[Split, Scored]:
    """Names, labels and scores of the pools of some splits."""
    tasks: list[Task] = [(location(data), split, method, selection) for split in splits]
    return dict(zip(splits, parallel_map(_score, tasks), strict=True))


def fit_platt(validation: Scored) -> AffineMap:
    """The two numbers that make probabilities of scores.

    Raises:
        DataError: no pool has a known right candidate.
    """
    _, labels, scores = validation
    known = [place for place, label in enumerate(labels) if label >= 0]
    if not known:
        raise DataError("no validation pool has a known right candidate", "Label some, then prepare the data again.")
    fitted = np.concatenate([scores[place] for place in known])
    targets = np.concatenate([_one_hot(len(scores[place]), labels[place]) for place in known])
    return Platt.Config().build().fit(fitted, targets)


def _score(task: Task) -> Scored:
    place, split, method, selection = task
    data = local_path(place)
    pull(data)
    torch.set_num_threads(1)
    pools = selected_pools(data, split, selection)
    scores = bm25_scores(pools) if method.scorer == "bm25" else _bi_encoder(method, pools)
    return [pool.pool_id for pool in pools], [pool.label for pool in pools], scores


def selected_pools(data: Path, split: Split, selection: Selection) -> list[Pool]:
    """All pools of a split that are selected, whether labelled or not."""
    order = np.concatenate([batch["label_order"].to_numpy() for batch in iter_pools(data, split, ["label_order"])])
    return list(as_pools(read_rows(data, split, selection.rows(split, "all", order))))


def _bi_encoder(method: Untrained, pools: list[Pool]) -> list[Floats]:
    encoder = method.encoder.build(num_intents=0)
    tokenizer, budget = Tokenizer(method.encoder.backbone), method.encoder.budget
    layout = tokenizer.layout(budget, encoder.max_length, encoder.vocabulary)
    return bi_encoder_scores(encoder, layout, [_token_pool(pool, tokenizer, budget) for pool in pools])


def _token_pool(pool: Pool, tokenizer: Tokenizer, budget: Budget) -> TokenPool:
    context = tokenizer([utterance.text for utterance in pool.context])
    candidates = tokenizer(list(pool.candidates))
    return TokenPool(
        row=0,
        pool_id=pool.pool_id,
        dialog_id=pool.dialog_id,
        context=[np.array(ids[-budget.max_context_tokens :], np.int32) for ids in context],
        intents=(),
        candidates=[np.array(ids[: budget.max_candidate_tokens], np.int32) for ids in candidates],
        label=pool.label,
    )


def _one_hot(size: int, place: int) -> npt.NDArray[np.int64]:
    return (np.arange(size) == place).astype(np.int64)


def untrained_table(scored: Scored, platt: FittedMap) -> pa.Table:
    """PREDICTION_SCHEMA of scored pools."""
    names, labels, scores = scored
    sizes = [len(pool) for pool in scores]
    known = np.repeat(np.array(labels) >= 0, sizes)
    one_hot = np.concatenate([_one_hot(size, label) for size, label in zip(sizes, labels, strict=True)])
    probs = platt.apply(np.concatenate(scores))
    zeros = np.zeros(len(probs))
    columns = {
        "pool_id": np.repeat(np.array(names, dtype=object), sizes),
        "candidate": np.concatenate([np.arange(size) for size in sizes]),
        "label": np.where(known, one_hot, -1),
        "view": np.full(len(probs), "plain", dtype=object),
        "logit": prob_logit(probs),
        "prob": probs,
        "logit_var": zeros,
        "prob_var": zeros,
        "mutual_information": zeros,
        "gain": np.full(len(probs), np.nan),
        "num_passes": np.ones(len(probs), np.int64),
    }
    return pa.table([pa.array(columns[f.name], f.type) for f in PREDICTION_SCHEMA], schema=PREDICTION_SCHEMA)
