"""Language models' answers as soft labels, whose precision is measured where people's labels are known, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from icalib.core.errors import DataError
from icalib.data.schema import SoftLabelSource
from icalib.labelling.annotations import Annotation, by_model
from icalib.labelling.consensus import Right
from icalib.metrics.calibration import fraction_interval
from icalib.training.pseudo_labelled import SOFT_LABEL_SCHEMA, SOFT_LABELS_FILE

MIN_CHECKED = 20
"""Labelled pools that a model's precision is measured on: with fewer, a 95 % interval of 80 % is wider than ±18 %."""


def checked(annotations: Sequence[Annotation], right: Mapping[str, Right], annotator: str) -> SoftLabelSource:
    """Return how often a model that named one candidate was right, where the `right` ones are known by pool.

    `num_pools` counts the other pools, of which its answers are soft labels.
    """
    named = {one.pool_id: one.right[0] for one in annotations if one.annotator == annotator and len(one.right) == 1}
    known = [candidate in right[pool_id] for pool_id, candidate in named.items() if pool_id in right]
    return SoftLabelSource(
        annotator=annotator, num_pools=len(named) - len(known), num_checked=len(known), num_right=sum(known)
    )


def precision_interval(source: SoftLabelSource) -> tuple[float, float]:
    """Return the 95 % interval of a model's precision (Wilson), if the labelled pools are like the others."""
    return fraction_interval(source.num_right, source.num_checked)


def described(source: SoftLabelSource) -> str:
    """Return how precise a model is, in a phrase."""
    low, high = precision_interval(source)
    fraction = source.num_right / max(1, source.num_checked)
    return f"{source} ({fraction:.0%}, 95 % interval {low:.0%}–{high:.0%}, if the labelled pools were drawn at random)"


@dataclass(frozen=True)
class SoftLabels:
    """Soft labels, one a pool, and who gave them."""

    rows: tuple[dict[str, Any], ...] = ()
    sources: tuple[SoftLabelSource, ...] = ()

    @classmethod
    def of(
        cls, annotations: Sequence[Annotation], right: Mapping[str, Right], new: Set[str], num_candidates: int
    ) -> Self:
        """Return the models' answers that name one candidate of a pool without a label of people.

        Of several models, the more precise one counts. A DataError says that too few pools have both kinds of labels,
        or that one of the `new` models may be no better than chance; earlier ones that are not any more are left out.
        """
        models = {one.annotator for one in annotations if by_model(one)}
        found = sorted((checked(annotations, right, one) for one in sorted(models)), key=lambda one: -one.precision)
        rows: dict[str, dict[str, Any]] = {}
        sources: list[SoftLabelSource] = []
        for source in found:
            if problem := _problem(source, 1 / num_candidates):
                if source.annotator in new:
                    raise problem
                continue
            own: dict[str, dict[str, Any]] = {
                one.pool_id: {"candidate": one.right[0], "annotator": source.annotator, "precision": source.precision}
                for one in annotations
                if one.annotator == source.annotator and len(one.right) == 1
                if one.pool_id not in right and one.pool_id not in rows
            }
            sources.append(source.model_copy(update={"num_pools": len(own)}))
            rows |= own
        # sorted: answers come in any order, but what is trained should not depend on it
        return cls(tuple({"pool_id": name, **rows[name]} for name in sorted(rows)), tuple(sources))

    def write(self, folder: Path) -> None:
        """Write soft_labels.parquet into a pool folder, if there are any."""
        if self.sources:
            table = pa.Table.from_pylist([*self.rows], schema=SOFT_LABEL_SCHEMA)
            pq.write_table(table, folder / SOFT_LABELS_FILE)


NO_SOFT_LABELS = SoftLabels()


def _problem(source: SoftLabelSource, chance: float) -> DataError | None:
    if source.num_checked < MIN_CHECKED:
        return DataError(
            f"{source.annotator} named a candidate of {source.num_checked} labelled pools; its precision is measured "
            f"on {MIN_CHECKED} or more",
            "Label more pools that were drawn at random (`icalib label next --by random`), import them, and ask the "
            "model about them, too: `icalib label ask` does so by itself.",
        )
    if precision_interval(source)[0] <= chance:
        return DataError(
            f"{described(source)} may be no better than chance ({chance:.0%})",
            "Ask a better model, or improve what it sees of the dialogues (`icalib prepare --context-turns`).",
        )
    return None
