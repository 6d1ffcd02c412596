"""The sum of the parts, logit = b + Σ_k w_k part_k, and its scores; `parts/fit.py` fits w and b on validation."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, final

import pyarrow as pa
import torch
from pydantic import Field, SerializeAsAny
from typing_extensions import override

from icalib.core.component import Settings, validated_file
from icalib.core.errors import RunFolderError
from icalib.core.files import atomic_write, read_json
from icalib.core.job import Artifact, ShardedJob
from icalib.core.parquet import read_parquet, write_parquet
from icalib.models.checkpoint import CHECKPOINT_VERSION
from icalib.parts.job import ORDER, PartName
from icalib.scoring.column import Column, Columns, View, added, in_view, read_columns, scores_of_columns
from icalib.scoring.scores import PAIR_FIELDS, intents_path
from icalib.uncertainty.estimator import AbstractEstimator

PARTS_FILE = "parts.json"


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

    @classmethod
    def fitted(cls, path: Path | None, parts: Iterable[PartName]) -> SumOfParts:
        """Read parts.json; without one, the first of the parts is alone."""
        return cls.alone(next(iter(parts))) if path is None else cls.load(path)

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


def pairs_of(column: pa.Table) -> pa.Table:
    """Return the pairs of a column's shard, once each."""
    views = column["view"].to_pylist()
    return column.filter(pa.array([view == views[0] for view in views])).select([name for name, _ in PAIR_FIELDS])


def scores_of_parts(
    tables: Mapping[PartName, pa.Table], fitted: SumOfParts, estimator: AbstractEstimator.Config, *, softmax: bool
) -> pa.Table:
    """Return the scores (SCORE_SCHEMA) of pairs, which the parts' columns (COLUMN_SCHEMA) have in the same order."""
    pairs = pairs_of(next(iter(tables.values())))
    columns = fitted.columns({name: read_columns(table) for name, table in tables.items()}, pairs.num_rows)
    names = {name: pairs[name] for name in pairs.column_names}
    return scores_of_columns(names, columns, estimator.build(), softmax=softmax)


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
        fitted = SumOfParts.fitted(self.fit.path if self.fit else None, tables)
        intents = next((intents_path(path) for path in files.values() if intents_path(path).is_file()), None)
        if intents is not None:
            with atomic_write(intents_path(self.shard_path(folder, index))) as temporary:
                shutil.copyfile(intents, temporary)
        scores = scores_of_parts(tables, fitted, self.estimator, softmax=self.softmax)
        write_parquet(self.shard_path(folder, index), scores)
