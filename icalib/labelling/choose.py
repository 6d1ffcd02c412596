"""Which unlabelled pools to annotate next: at random, where the model is uncertain, or far from what is labelled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from icalib.core.errors import SettingError
from icalib.core.seeding import child_seed
from icalib.data.encoding import ids_by_text
from icalib.data.pools import as_pools, read_column, read_pool_set, read_rows
from icalib.data.schema import Pool, PoolSet
from icalib.data.selection import Rows, Selection
from icalib.encoders.backbone import Tokenizer
from icalib.labelling.annotations import by_model, read_annotations
from icalib.labelling.batches import By
from icalib.metrics.pairs import ranked_rows
from icalib.models.bi_encoder import open_bi_encoder
from icalib.pipeline.finished import FinishedRun, iter_predictions
from icalib.pipeline.run import RunContext

Vectors = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

_PER_CHOSEN = 10  # `mixed`: how many uncertain pools diverse ones are chosen among, for each pool of the batch
_POOLS_IN_MEMORY = 4096


@dataclass(frozen=True)
class Unlabelled:
    """The unlabelled training pools of N that a batch is chosen among, without those that people have annotated.

    Args:
        data: their pool folder.
        rows: their rows in it, ascending [N].
        labelled: the rows of the labelled ones.
        pool_ids, dialogs: their ids, and a number for each one's dialogue, [N].
    """

    data: Path
    pool_set: PoolSet
    rows: Rows
    labelled: Rows
    pool_ids: list[str]
    dialogs: IntArray

    @classmethod
    def of(cls, data: Path, run: FinishedRun | None) -> Unlabelled:
        """Find those of a run, or of a pool folder; a SettingError if there are none, or the run had other pools."""
        pool_set = read_pool_set(data)
        if run is not None:
            run.folder.check_trained_on(data, pool_set.digest)
        order = read_column(data, "train", "label_order")
        if run is None:
            labelled = labelled_rows(pool_set, order)
            rows = np.setdiff1d(np.arange(len(order)), labelled)
        else:
            labelled, rows = (run.config.selection.rows("train", part, order) for part in ("labelled", "unlabelled"))
        columns = read_rows(data, "train", rows, ["pool_id", "dialog_id"]) if len(rows) else None
        annotated = {annotation.pool_id for annotation in read_annotations(data) if not by_model(annotation)}
        ids: list[str] = [] if columns is None else columns["pool_id"].to_pylist()
        keep = np.array([name not in annotated for name in ids], dtype=bool)
        if columns is None or not keep.any():
            raise SettingError(f"{data} has no unlabelled training pools left. Prepare more dialogues.")
        _, dialogs = np.unique(np.array(columns["dialog_id"].to_pylist()), return_inverse=True)
        kept = [name for name, wanted in zip(ids, keep, strict=True) if wanted]
        return cls(data, pool_set, rows[keep], labelled, kept, dialogs[keep].astype(np.int64))

    def pools(self, chosen: IntArray) -> list[Pool]:
        """Read some of them, in the order of the indices in `chosen`."""
        return list(as_pools(read_rows(self.data, "train", self.rows[chosen])))


@dataclass(frozen=True)
class Chosen:
    """Indices of unlabelled pools, in the order in which they were chosen, and how: one phrase for people."""

    indices: IntArray
    how: str


def labelled_rows(pool_set: PoolSet, label_order: npt.NDArray[Any]) -> Rows:
    """Return the rows of a pool folder's labelled training pools, in the order in which they became labelled.

    They are the default labelled fraction; without one, all pools with a known label if others have none, and otherwise
    no pool: the labels of all pools are those of a public data set, or the replies that were really given.
    """
    is_known = label_order >= 0
    fraction = pool_set.default_labelled_fraction
    if fraction is None:
        fraction = 0.0 if is_known.all() else 1.0
    if not (fraction and is_known.any()):
        return np.zeros(0, np.int64)
    rows = Selection(labelled_fraction=fraction).rows("train", "labelled", label_order)
    return rows[np.argsort(label_order[rows], kind="stable")]


def choose(
    unlabelled: Unlabelled, by: By, number: int, seed: int, run: FinishedRun | None, predictions: pa.Table | None
) -> Chosen:
    """Choose at most `number` pools; the same for the same seed.

    `random` ones stand for all pools, so that each has the same chance: with one a dialogue, short dialogues would have
    more than their share. Others are of different dialogues while there are any. `uncertain` and `mixed` need
    `predictions`, and all but `random` a run.
    """
    order = np.random.default_rng(child_seed(seed, "pools to label")).permutation(len(unlabelled.rows))
    number, dialogs = min(number, len(order)), unlabelled.dialogs
    if by == "random" or run is None:
        return Chosen(order[:number], "at random")
    if by == "diverse":
        vectors = context_vectors(run, unlabelled.data, unlabelled.rows[order])
        centers = context_vectors(run, unlabelled.data, unlabelled.labelled)
        found = k_center(vectors, number, centers, dialogs[order])
        return Chosen(order[found], "far from the labelled pools and from each other (k-center)")
    assert predictions is not None
    uncertainty_N, measure = uncertainty(predictions, unlabelled.pool_ids)
    order = order[np.argsort(-uncertainty_N[order], kind="stable")]
    if by == "uncertain":
        return Chosen(of_different_dialogs(order, dialogs, number), f"the most uncertain by {measure}")
    first = of_different_dialogs(order, dialogs, math.ceil(number / 2))
    others = order[: _PER_CHOSEN * number]
    others = others[~np.isin(others, first)]
    vectors = context_vectors(run, unlabelled.data, unlabelled.rows[np.concatenate([first, others])])
    found = k_center(
        vectors[len(first) :], number - len(first), vectors[: len(first)], dialogs[others], taken=dialogs[first]
    )
    how = f"half the most uncertain by {measure}, half far from those (k-center)"
    return Chosen(np.concatenate([first, others[found]]), how)


def of_different_dialogs(order: IntArray, dialogs_N: IntArray, number: int) -> IntArray:
    """Return the first indices of `order`: of different dialogues, and then others if there are too few dialogues."""
    _, firsts = np.unique(dialogs_N[order], return_index=True)
    is_first = np.isin(np.arange(len(order)), firsts)
    return np.concatenate([order[is_first], order[~is_first]])[:number]


def k_center(
    vectors_ND: Vectors, number: int, centers_MD: Vectors, dialogs_N: IntArray, *, taken: IntArray | None = None
) -> IntArray:
    """Return indices of vectors, each the farthest from all centers and from those before (Sener & Savarese 2018).

    No two are of one dialogue, nor of those `taken`, while there are others. O(N · (M + number) · D).
    """
    distance_N = np.full(len(vectors_ND), np.inf, dtype=np.float32)
    for center_D in centers_MD:
        distance_N = np.minimum(distance_N, ((vectors_ND - center_D) ** 2).sum(1))
    is_free = np.ones(len(vectors_ND), dtype=bool)
    is_new = ~np.isin(dialogs_N, [] if taken is None else taken)
    chosen: list[int] = []
    for _ in range(min(number, len(vectors_ND))):
        allowed = is_free & is_new if (is_free & is_new).any() else is_free
        best = int(np.argmax(np.where(allowed, distance_N, -1.0)))
        chosen.append(best)
        is_free[best] = False
        is_new &= dialogs_N != dialogs_N[best]
        distance_N = np.minimum(distance_N, ((vectors_ND - vectors_ND[best]) ** 2).sum(1))
    return np.array(chosen, dtype=np.int64)


def training_predictions(run: FinishedRun, data: Path, context: RunContext) -> pa.Table:
    """Return a run's predictions of its training pools; the stage cache keeps the scores for the next call."""
    limit = run.config.limit.get("train")
    return pa.concat_tables(iter_predictions(run, data, "train", limit, context))


def uncertainty(predictions: pa.Table, pool_ids: Sequence[str]) -> tuple[npt.NDArray[np.float64], str]:
    """Return each pool's uncertainty about which candidate is right [N], larger is less certain, and what it is.

    The mutual information of the best candidate, in nats, where the method has one; else minus the margin between the
    two best probabilities.
    """
    prob, information = (np.nan_to_num(predictions[name].to_numpy()) for name in ("prob", "mutual_information"))
    order, starts = ranked_rows(predictions)
    best, second = order[starts], order[starts + 1]
    if information.max() > 0:
        values, measure = information[best], "the mutual information of the best candidate"
    else:
        values, measure = prob[second] - prob[best], "the margin between the two best probabilities"
    of_pool = dict(zip(predictions["pool_id"].take(best).to_pylist(), values.tolist(), strict=True))
    return np.array([of_pool[pool_id] for pool_id in pool_ids]), measure


def context_vectors(run: FinishedRun, data: Path, rows: Rows) -> Vectors:
    """Return the mean token states of training pools' contexts [N, D], of length 1, in the order of `rows`.

    They are those of the run's similarity part, or of its backbone where it has none; computed in this process.
    """
    parts = [path / "similarity" for path, _ in run.members]
    checkpoint = next((path for path in parts if path.is_dir()), None)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loaded = open_bi_encoder(run.config.settings.encoder, checkpoint).to(device).eval()
    tokenizer = Tokenizer(loaded.config.backbone)
    found: list[Vectors] = []
    for start in range(0, len(rows), _POOLS_IN_MEMORY):
        contexts = read_rows(data, "train", rows[start : start + _POOLS_IN_MEMORY], ["context"])["context"].to_pylist()
        ids = ids_by_text((utterance["text"] for turns in contexts for utterance in turns), tokenizer)
        texts = [[np.array(ids[utterance["text"]], np.int32) for utterance in turns] for turns in contexts]
        found.append(loaded.vectors([loaded.layout.context_ids(turns, None) for turns in texts]))
    return np.concatenate(found) if found else np.zeros((0, 1), np.float32)
