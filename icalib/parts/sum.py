"""The sum of the parts: logit = b + Σ_k w_k part_k, whose weights are fitted on validation, and its scores."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from pydantic import Field, SerializeAsAny
from scipy.special import expit, logit
from torch import Tensor
from typing_extensions import override

from icalib.calibration.calibrator import smoothed_targets
from icalib.core.component import Settings, validated_file
from icalib.core.errors import RunFolderError
from icalib.core.events import Emit
from icalib.core.files import atomic_write, read_json, write_json
from icalib.core.job import Artifact, LocalJob, ShardedJob
from icalib.core.parquet import read_parquet
from icalib.data.schema import UNKNOWN_LABEL
from icalib.inference.moments import mean_field
from icalib.metrics.calibration import nll
from icalib.metrics.pairs import PoolScores
from icalib.metrics.ranking import mean_defined, recall_at_k
from icalib.models.checkpoint import CHECKPOINT_VERSION
from icalib.parts.job import ORDER, PartName
from icalib.scoring.column import (
    Column,
    Columns,
    Floats,
    View,
    added,
    in_view,
    joined,
    pool_sizes,
    read_columns,
    scores_of_columns,
)
from icalib.scoring.offsets import Offsets
from icalib.scoring.scores import PAIR_FIELDS, intents_path
from icalib.uncertainty.estimator import AbstractEstimator

PARTS_FILE = "parts.json"
_TINY = 1e-15
_LEAST = 1e-3  # weight, in logits per standard deviation, of a part that is the only one: it ranks, however badly
_MIN_GAIN = 1.0  # nats of all validation pairs together that a part must be worth (Akaike 1974: one parameter)


class PartWeight(Settings):
    """A part in the sum, and what it does alone."""

    name: PartName
    weight: float = Field(ge=0)
    """w_k; 0: it doesn't help, and isn't run at prediction."""
    recall: float | None = None
    """R@1 of the part alone on validation."""
    nll: float | None = None
    """NLL of the part alone, with a slope and an offset of its own."""


class SumOfParts(Settings):
    """The fitted sum, as parts.json has it."""

    parts: tuple[PartWeight, ...]
    offset: float = 0.0
    """b"""
    recall: float | None = None
    """R@1 of the sum on validation."""
    nll: float | None = None
    """NLL of the sum on validation, to which it is fitted."""

    @classmethod
    def alone(cls, name: PartName) -> SumOfParts:
        """Return one part with w = 1 and b = 0."""
        return cls(parts=(PartWeight(name=name, weight=1.0),))

    @property
    def used(self) -> tuple[PartName, ...]:
        """The parts with a weight."""
        return tuple(part.name for part in self.parts if part.weight)

    def weight(self, name: PartName) -> float:
        """w_k of a part; 0 for one that the sum doesn't have."""
        return next((part.weight for part in self.parts if part.name == name), 0.0)

    def of(self, columns: Mapping[PartName, Columns], view: View, num_pairs: int) -> Column:
        """Return the sum in a view."""
        used = [in_view(columns[name], view, num_pairs) for name in self.used]
        return added(used, [self.weight(name) for name in self.used], self.offset)

    def columns(self, parts: Mapping[PartName, Columns], num_pairs: int) -> Columns:
        """Return the sum in every view that a part has, used or not."""
        has_intents = any("intent" in columns for columns in parts.values())
        views: tuple[View, ...] = ("plain", "intent") if has_intents else ("plain",)
        return {view: self.of(parts, view, num_pairs) for view in views}

    @classmethod
    def load(cls, path: Path) -> SumOfParts:
        """Read parts.json, or raise a RunFolderError."""
        return validated_file(path, cls, read_json(path))


def read_member(folder: Path) -> tuple[SumOfParts, dict[PartName, Path]]:
    """Return the fitted sum in a member's folder, and the checkpoints of its parts, in their order.

    Raises:
        RunFolderError: parts.json can't be read, or gives a weight to a part without a checkpoint.
    """
    fitted = SumOfParts.load(folder / PARTS_FILE)
    found = {name: folder / name for name in ORDER if (folder / name).is_dir()}
    if missing := [name for name in fitted.used if name not in found]:
        raise RunFolderError(
            f"{folder / PARTS_FILE} gives a weight to {', '.join(missing)}, which has no checkpoint beside it. "
            "Run the `icalib run` command again with --fresh."
        )
    return fitted, found


def column_files(folder: Path) -> list[Path]:
    """Return the shards of a column."""
    return sorted(folder.glob("column-*.parquet"))


class FitJob(LocalJob):
    """Fits the weights of the parts on validation."""

    columns: dict[PartName, Artifact]
    """Validation columns of each part."""
    estimator: SerializeAsAny[AbstractEstimator.Config]
    """The one that predicts."""
    view: View

    @override
    def compute(self, folder: Path, stage: str, emit: Emit) -> None:
        names = [name for name in ORDER if name in self.columns]
        pairs, columns = _read({name: self.columns[name].path for name in names}, self.view)
        known = pairs["label"].to_numpy() != UNKNOWN_LABEL
        fitted = fit_sum({name: columns[name].take(known) for name in names}, pairs.filter(pa.array(known)))
        write_json(folder / PARTS_FILE, fitted.model_dump(mode="json"))


def _read(folders: Mapping[PartName, Path], view: View) -> tuple[pa.Table, dict[PartName, Column]]:
    """Return the pairs of some shards, and each part's column of them in a view."""
    found: dict[PartName, list[Column]] = {name: [] for name in folders}
    pairs: list[pa.Table] = []
    for shards in zip(*map(column_files, folders.values()), strict=True):
        tables = [read_parquet(path) for path in shards]
        pairs.append(_pairs(tables[0]))
        for name, table in zip(folders, tables, strict=True):
            found[name].append(in_view(read_columns(table), view, pairs[-1].num_rows))
    return pa.concat_tables(pairs), {name: joined(columns) for name, columns in found.items()}


def _pairs(column: pa.Table) -> pa.Table:
    """Return the pairs of a column's shard, once each."""
    views = column["view"].to_pylist()
    return column.filter(pa.array([view == views[0] for view in views])).select([name for name, _ in PAIR_FIELDS])


def fit_sum(columns: Mapping[PartName, Column], pairs: pa.Table) -> SumOfParts:
    """Fit w ≥ 0 and b to pairs with known labels by the likelihood of the mean probabilities that the sum predicts.

    A part without which the fit is as good (by less than one nat, over all pairs) gets w = 0, the least useful first.
    """
    label_N = pairs["label"].to_numpy().astype(np.int64)
    kept = list(columns)
    fits = {tuple(kept): _fit([columns[name] for name in kept], label_N)}
    while len(kept) > 1:
        for name in kept:
            rest = [other for other in kept if other != name]
            fits.setdefault(tuple(rest), _fit([columns[other] for other in rest], label_N))
        least = min(kept, key=lambda name: fits[tuple(other for other in kept if other != name)].loss)
        rest = [other for other in kept if other != least]
        if fits[tuple(rest)].loss - fits[tuple(kept)].loss >= _MIN_GAIN:
            break
        kept = rest
    best = fits[tuple(kept)]
    alone = {name: fits.get((name,)) or _fit([column], label_N) for name, column in columns.items()}
    weights = dict(zip(kept, best.weights, strict=True))
    return SumOfParts(
        parts=tuple(
            PartWeight(
                name=name,
                weight=weights.get(name, 0.0),
                recall=_recall(pairs, columns[name].mean_SN.mean(0)),
                nll=nll(alone[name].prob_N, label_N),
            )
            for name in columns
        ),
        offset=best.offset,
        recall=_recall(pairs, best.ranking),
        nll=nll(best.prob_N, label_N),
    )


def _recall(pairs: pa.Table, logit_N: Floats) -> float:
    names = {"pool_id": pairs["pool_id"], "candidate": pairs["candidate"], "label": pairs["label"]}
    scores = PoolScores.from_predictions(pa.table({**names, "logit": logit_N, "prob": expit(logit_N)}))
    return mean_defined(recall_at_k(scores, 1))


class _Fit(NamedTuple):
    """Weights and offset of some columns, the mean probabilities [N] that they give, and their summed NLL."""

    weights: Floats
    offset: float
    prob_N: Floats
    loss: float

    @property
    def ranking(self) -> Floats:
        """The logit of the mean probability [N], by which pairs are ranked."""
        return logit(self.prob_N)


def _fit(columns: Sequence[Column], label_N: npt.NDArray[np.int64]) -> _Fit:
    """Minimise the NLL of the mean over components of E σ(f), f Gaussian (mean field), with Platt's smoothed targets.

    Each part is scaled by its spread, so that one start and one tolerance suit all of them.
    """
    from scipy.optimize import minimize  # slow to import, and predictions don't fit

    target_N = torch.from_numpy(smoothed_targets(label_N))
    scales = np.array([float(column.mean_SN.std()) or 1.0 for column in columns])
    centres = np.array([float(column.mean_SN.mean()) for column in columns])
    means = [torch.from_numpy((c.mean_SN - m) / s) for c, m, s in zip(columns, centres, scales, strict=True)]
    variances = [torch.from_numpy(column.var_SN / s**2) for column, s in zip(columns, scales, strict=True)]

    def prob_of(parameters: Tensor) -> Tensor:
        weights = parameters[:-1]
        mean_SN = parameters[-1] + sum(w * mean for w, mean in zip(weights, means, strict=True))
        var_SN = sum(w * w * var for w, var in zip(weights, variances, strict=True))
        return mean_field(*torch.broadcast_tensors(mean_SN, var_SN)).mean(0).clamp(_TINY, 1 - _TINY)

    def loss_and_gradient(values: Floats) -> tuple[float, Floats]:
        parameters = torch.from_numpy(values).requires_grad_()
        loss = torch.nn.functional.binary_cross_entropy(prob_of(parameters), target_N)
        loss.backward()
        assert parameters.grad is not None
        return float(loss.detach()), parameters.grad.numpy()

    start = np.array([1.0 / len(columns)] * len(columns) + [float(logit(float(target_N.mean())))])
    least = _LEAST if len(columns) == 1 else 0.0
    bounds = [(least, None)] * len(columns) + [(None, None)]
    best = minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-12})
    weights = best.x[:-1] / scales
    prob_N = prob_of(torch.from_numpy(best.x)).numpy()
    return _Fit(weights, float(best.x[-1] - weights @ centres), prob_N, float(len(label_N) * nll(prob_N, label_N)))


@final
class SumJob(ShardedJob):
    """Adds the columns of some pools and computes the scores, in the columns' shards."""

    version: ClassVar[int] = CHECKPOINT_VERSION
    verb: ClassVar[str] = "adding"

    columns: dict[PartName, Artifact]
    fit: Artifact | None = None
    """parts.json; None: the one part alone."""
    estimator: SerializeAsAny[AbstractEstimator.Config]
    softmax: bool = False
    """Probabilities are those of a softmax over a pool."""

    @property
    @override
    def uses_models(self) -> bool:
        return False

    @override
    def shards(self) -> list[int]:
        return list(range(len(column_files(next(iter(self.columns.values())).path))))

    @override
    def shard_path(self, folder: Path, index: int) -> Path:
        return folder / f"scores-{index:06d}.parquet"

    @override
    def shared_files(self, folder: Path, index: int) -> Sequence[Path]:
        return [intents_path(self.shard_path(folder, index)), self.shard_path(folder, index)]

    @override
    def compute_shard(self, index: int, shard: int, folder: Path, device: torch.device) -> None:
        files = {name: column_files(artifact.path)[shard] for name, artifact in self.columns.items()}
        tables = {name: read_parquet(path) for name, path in files.items()}
        fitted = SumOfParts.alone(next(iter(tables))) if self.fit is None else SumOfParts.load(self.fit.path)
        intents = next((intents_path(path) for path in files.values() if intents_path(path).is_file()), None)
        if intents is not None:
            with atomic_write(intents_path(self.shard_path(folder, index))) as temporary:
                shutil.copyfile(intents, temporary)
        pairs = _pairs(next(iter(tables.values())))
        columns = fitted.columns({name: read_columns(table) for name, table in tables.items()}, pairs.num_rows)
        names = {name: pairs[name] for name in pairs.column_names}
        scores = scores_of_columns(names, columns, self.estimator.build(), softmax=self.softmax)
        with atomic_write(self.shard_path(folder, index)) as temporary:
            pq.write_table(scores, temporary)


class OffsetJob(LocalJob):
    """Writes the logits of some parts, added by their weights, for those that learn to correct them.

    Training pools are those that the parts were not trained on: each fold of the labelled ones, and unlabelled ones.
    """

    fit: Artifact
    """parts.json of these parts."""
    train: dict[PartName, tuple[Artifact, ...]]
    """Columns of training pools."""
    validation: dict[PartName, tuple[Artifact, ...]]

    @override
    def compute(self, folder: Path, stage: str, emit: Emit) -> None:
        fitted = SumOfParts.load(self.fit.path)
        for name, columns in (("train", self.train), ("validation", self.validation)):
            _offsets(fitted, columns).save(folder / f"{name}.parquet")


def _offsets(fitted: SumOfParts, columns: Mapping[PartName, Sequence[Artifact]]) -> Offsets:
    views: tuple[View, View] = ("plain", "intent")
    logits: dict[View, dict[int, Floats]] = {view: {} for view in views}
    intents: dict[int, list[list[int]]] = {}
    for name, folders in columns.items():
        weight = fitted.weight(name)
        for path in (path for folder in folders for path in column_files(folder.path)):
            table = read_parquet(path)
            pairs, found = _pairs(table), read_columns(table)
            sizes = pool_sizes(pairs["row"])
            rows = pairs["row"].to_numpy()[np.cumsum([0, *sizes[:-1]])].tolist()
            for view in views:
                mean_N = weight * in_view(found, view, pairs.num_rows).mean_SN.mean(0)
                for row, mean_C in zip(rows, np.split(mean_N, np.cumsum(sizes)[:-1]), strict=True):
                    logits[view][row] = logits[view].get(row, fitted.offset) + mean_C
            if intents_path(path).is_file():
                known = read_parquet(intents_path(path))
                intents.update(zip(known["row"].to_pylist(), known["intents"].to_pylist(), strict=True))
    return Offsets(logits, intents if intents.keys() >= logits["plain"].keys() else None)
