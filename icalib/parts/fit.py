"""Fitting the weights of a sum of parts on validation, and its logits for parts that correct earlier ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from pydantic import Field, SerializeAsAny
from scipy.special import expit, logit
from torch import Tensor
from typing_extensions import override

from icalib.calibration.calibrator import deviation, smoothed_targets
from icalib.core.events import Emit
from icalib.core.files import atomic_write, write_json
from icalib.core.job import Artifact, LocalJob
from icalib.core.parquet import read_parquet
from icalib.data.schema import UNKNOWN_LABEL
from icalib.inference.moments import MEAN_FIELD_FACTOR, mean_field
from icalib.metrics.calibration import nll
from icalib.metrics.pairs import PoolScores
from icalib.metrics.ranking import mean_defined, recall_at_k
from icalib.parts.job import ORDER, PartName
from icalib.parts.sum import PARTS_FILE, PartWeight, SumOfParts, column_files, pairs_of
from icalib.scoring.column import Column, Floats, View, in_view, joined, pool_sizes, read_columns
from icalib.scoring.offsets import OFFSET_SCHEMA, VIEWS
from icalib.scoring.scores import SHARD_INTENT_SCHEMA, intents_path
from icalib.uncertainty.estimator import AbstractEstimator, Posterior

_TINY = 1e-15
_LEAST = 1e-3  # weight, in logits per standard deviation, of a part that is the only one: it ranks, however badly
_MOST_VARIANCE = 16.0  # of a part's logits on average, to which 32 nodes of quadrature are exact to 2e-4
_FILES_AT_ONCE = 16  # of columns, of 32 pools each by default, or of thousands in large runs
_INTENTS = OFFSET_SCHEMA.field("intents").type
_MIN_GAIN = 1.0  # nats of all validation pairs together that a part must be worth (Akaike 1974: one parameter)


class FitJob(LocalJob):
    """Fits the weights of the parts on validation."""

    version: ClassVar[int] = 4  # equal values have no deviation

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
        estimator, factor = self.estimator, MEAN_FIELD_FACTOR
        if isinstance(estimator, Posterior.Config) and estimator.integration == "mean_field":
            factor = estimator.mean_field_factor
        fitted = fit_sum({name: columns[name].take(known) for name in names}, pairs.filter(pa.array(known)), factor)
        write_json(folder / PARTS_FILE, fitted.model_dump(mode="json"))


def _read(folders: Mapping[PartName, Path], view: View) -> tuple[pa.Table, dict[PartName, Column]]:
    """Return the pairs of some shards, and each part's column of them in a view."""
    found: dict[PartName, list[Column]] = {name: [] for name in folders}
    pairs: list[pa.Table] = []
    for shards in zip(*map(column_files, folders.values()), strict=True):
        tables = [read_parquet(path) for path in shards]
        pairs.append(pairs_of(tables[0]))
        for name, table in zip(folders, tables, strict=True):
            found[name].append(in_view(read_columns(table), view, pairs[-1].num_rows))
    return pa.concat_tables(pairs), {name: joined(columns) for name, columns in found.items()}


def fit_sum(columns: Mapping[PartName, Column], pairs: pa.Table, factor: float = MEAN_FIELD_FACTOR) -> SumOfParts:
    """Fit w ≥ 0 and b to pairs with known labels by the likelihood of the mean probabilities that the sum predicts.

    A part without which the fit is as good (by less than one nat, over all pairs) gets w = 0, the least useful first.
    `factor` is that of the mean field.
    """
    label_N = pairs["label"].to_numpy().astype(np.int64)
    kept = list(columns)
    fits = {tuple(kept): _fit([columns[name] for name in kept], label_N, factor)}
    while len(kept) > 1:
        for name in kept:
            rest = [other for other in kept if other != name]
            fits.setdefault(tuple(rest), _fit([columns[other] for other in rest], label_N, factor))
        least = min(kept, key=lambda name: fits[tuple(other for other in kept if other != name)].loss)
        rest = [other for other in kept if other != least]
        if fits[tuple(rest)].loss - fits[tuple(kept)].loss >= _MIN_GAIN:
            break
        kept = rest
    best = fits[tuple(kept)]
    alone = {name: fits.get((name,)) or _fit([column], label_N, factor) for name, column in columns.items()}
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


def _fit(columns: Sequence[Column], label_N: npt.NDArray[np.int64], factor: float) -> _Fit:
    """Minimise the NLL of the mean over components of E σ(f), f Gaussian (mean field), with Platt's smoothed targets.

    Each part is scaled by its spread, so that one start and one tolerance suit all of them. Weights are bounded: where
    variance outweighs the differences between pairs, probabilities depend on the ratio of weight and offset alone, and
    both would grow without end.
    """
    from scipy.optimize import minimize  # slow to import, and predictions don't fit

    target_N = torch.from_numpy(smoothed_targets(label_N))
    scales = np.array([deviation(column.mean_SN) or 1.0 for column in columns])
    centres = np.array([float(column.mean_SN.mean()) for column in columns])
    means = [torch.from_numpy((c.mean_SN - m) / s) for c, m, s in zip(columns, centres, scales, strict=True)]
    variances = [torch.from_numpy(column.var_SN / s**2) for column, s in zip(columns, scales, strict=True)]

    def prob_of(parameters: Tensor) -> Tensor:
        weights = parameters[:-1]
        mean_SN = parameters[-1] + sum(w * mean for w, mean in zip(weights, means, strict=True))
        var_SN = sum(w * w * var for w, var in zip(weights, variances, strict=True))
        return mean_field(*torch.broadcast_tensors(mean_SN, var_SN), factor=factor).mean(0).clamp(_TINY, 1 - _TINY)

    def loss_and_gradient(values: Floats) -> tuple[float, Floats]:
        parameters = torch.from_numpy(values).requires_grad_()
        loss = torch.nn.functional.binary_cross_entropy(prob_of(parameters), target_N)
        loss.backward()
        assert parameters.grad is not None
        return float(loss.detach()), parameters.grad.numpy()

    start = np.array([1.0 / len(columns)] * len(columns) + [float(logit(float(target_N.mean())))])
    least = _LEAST if len(columns) == 1 else 0.0
    most = [float(np.sqrt(_MOST_VARIANCE / max(float(var_SN.mean()), _TINY))) for var_SN in variances]
    bounds = [(min(least, bound), bound) for bound in most] + [(None, None)]
    best = minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-12})
    weights = best.x[:-1] / scales
    prob_N = prob_of(torch.from_numpy(best.x)).numpy()
    return _Fit(weights, float(best.x[-1] - weights @ centres), prob_N, float(len(label_N) * nll(prob_N, label_N)))


class OffsetJob(LocalJob):
    """Writes the logits of some parts, added by their weights, for those that learn to correct them.

    Training pools are those that the parts were not trained on: each fold of the labelled ones, and the unlabelled ones
    that have pseudo labels, block by block of their files, however many there are.
    """

    fit: Artifact
    """parts.json of these parts."""
    labelled: dict[PartName, tuple[Artifact, ...]]
    """Columns of the labelled training pools."""
    validation: dict[PartName, Artifact]
    unlabelled: dict[PartName, Artifact] = Field(default_factory=dict)
    pseudo_labels: Artifact | None = None
    """Folder of the pseudo labels of the unlabelled pools, in the shards of their columns."""

    @override
    def compute(self, folder: Path, stage: str, emit: Emit) -> None:
        fitted = SumOfParts.load(self.fit.path)
        labelled = {
            name: [path for one in columns for path in column_files(one.path)]
            for name, columns in self.labelled.items()
        }
        train = chain([_offsets(fitted, labelled)], self._selected(fitted))
        validation = {name: column_files(column.path) for name, column in self.validation.items()}
        for name, tables in (("train", train), ("validation", [_offsets(fitted, validation)])):
            with (
                atomic_write(folder / f"{name}.parquet") as temporary,
                pq.ParquetWriter(temporary, OFFSET_SCHEMA) as writer,
            ):
                for table in tables:
                    writer.write_table(table)

    def _selected(self, fitted: SumOfParts) -> Iterator[pa.Table]:
        """Yield the offsets of the unlabelled pools that have pseudo labels."""
        if self.pseudo_labels is None:
            return
        files = {name: column_files(column.path) for name, column in self.unlabelled.items()}
        labels = sorted(self.pseudo_labels.path.glob("pseudo-*.parquet"))
        for start in range(0, len(labels), _FILES_AT_ONCE):
            block = slice(start, start + _FILES_AT_ONCE)
            ids = pa.chunked_array(
                [chunk for path in labels[block] for chunk in read_parquet(path, ["pool_id"])["pool_id"].chunks],
                pa.string(),
            )
            if len(ids):
                yield _offsets(fitted, {name: paths[block] for name, paths in files.items()}, ids.unique())


def _offsets(
    fitted: SumOfParts, files: Mapping[PartName, Sequence[Path]], pool_ids: pa.Array | None = None
) -> pa.Table:
    """Return OFFSET_SCHEMA of the pools in some files of each part's column, or of some of these pools."""
    logits: dict[View, Floats] = {}
    row_N, intents = np.zeros(0, np.int64), SHARD_INTENT_SCHEMA.empty_table()
    for name, paths in files.items():
        table = pa.concat_tables([read_parquet(path) for path in paths])
        if pool_ids is not None:
            table = table.filter(pc.field("pool_id").isin(pool_ids))
        row_N, columns = pairs_of(table)["row"].to_numpy(), read_columns(table)
        order = np.argsort(row_N, kind="stable")
        row_N = row_N[order]
        for view in VIEWS:
            mean_N = in_view(columns, view, len(row_N)).mean_SN.mean(0)
            logits[view] = logits.get(view, fitted.offset) + fitted.weight(name) * mean_N[order]
        known = [read_parquet(intents_path(path)) for path in paths if intents_path(path).is_file()]
        intents = pa.concat_tables([intents, *known])
    offsets = np.append(0, np.cumsum(pool_sizes(row_N))).astype(np.int32)
    row_P = row_N[offsets[:-1]]
    intents = intents.filter(pc.field("row").isin(row_P)).sort_by("row")
    of_pools = intents["intents"] if len(intents) == len(row_P) else pa.nulls(len(row_P), _INTENTS)
    lists = [pa.ListArray.from_arrays(offsets, logits[view]) for view in VIEWS]
    return pa.table([row_P, *lists, of_pools], schema=OFFSET_SCHEMA)
