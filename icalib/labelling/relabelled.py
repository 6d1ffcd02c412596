"""Writing a pool folder again with other labels of its training pools."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from icalib.core.contents import facts_of
from icalib.core.files import atomic_dir, write_json
from icalib.core.storage import push
from icalib.core.version import __version__
from icalib.data.logs import LOGS_FILE
from icalib.data.pool_folder import SplitWriter, described
from icalib.data.pools import iter_pools, prepared_inputs, read_column
from icalib.data.schema import (
    ANNOTATIONS_FILE,
    NONE_RIGHT,
    POOLS_FILE,
    SPLITS,
    UNKNOWN_LABEL,
    PoolSet,
    Split,
    right_indices,
)
from icalib.labelling.annotations import Annotation, write_annotations
from icalib.labelling.choose import labelled_rows
from icalib.labelling.consensus import Right
from icalib.labelling.soft_labels import NO_SOFT_LABELS, SoftLabels


class Labels:
    """The training pools' labels and their order."""

    def __init__(self, data: Path, pool_set: PoolSet) -> None:
        self._order = read_column(data, "train", "label_order")
        self._labelled: dict[int, None] = dict.fromkeys(labelled_rows(pool_set, self._order).tolist())
        self.num_pools = len(self._order)
        self._labels: dict[int, dict[str, Any]] = {}
        self._intents: dict[int, list[list[str]]] = {}

    @property
    def labelled(self) -> list[int]:
        """The rows of labelled pools, in the order in which they became labelled."""
        return list(self._labelled)

    def set(self, row: int, right: Right, intents: list[list[str]]) -> None:
        """Label a pool; utterances without intents keep those that they had."""
        self._labels[row] = {"label": right[0] if right else NONE_RIGHT, "also_right": list(right[1:])}
        self._intents[row] = intents
        self._labelled.setdefault(row)

    def right(self, data: Path) -> dict[str, Right]:
        """Return the right candidates of the labelled pools whose label is known, by the pools' ids."""
        rows = enumerate(self.applied(data, "train"))
        return {
            row["pool_id"]: right_indices(row["label"], row["also_right"])
            for number, row in rows
            if number in self._labelled and row["label"] != UNKNOWN_LABEL
        }

    def forget(self, row: int) -> None:
        """Make a pool's label unknown."""
        self._labels[row] = {"label": UNKNOWN_LABEL, "also_right": []}
        self._labelled.pop(row, None)

    @property
    def intents(self) -> set[str]:
        """All intents that annotators gave."""
        return {intent for turns in self._intents.values() for intents in turns for intent in intents}

    def applied(self, data: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yield a split's rows; training pools with their labels and `label_order_after`, −1 for others."""
        rows = (row for batch in iter_pools(data, split) for row in batch.to_pylist())
        if split != "train":
            yield from rows
            return
        order = label_order_after(self._order, self.labelled, self._labels.keys())
        for number, row in enumerate(rows):
            row.update({**self._labels.get(number, {}), "label_order": order.get(number, -1)})
            for utterance, intents in zip(row["context"], self._intents.get(number, []), strict=False):
                utterance["intents"] = intents or utterance["intents"]
            yield row


def label_order_after(order_N: npt.NDArray[Any], labelled: Sequence[int], changed: Set[int]) -> dict[int, int]:
    """Return the `label_order` of rows of N pools that have one: of the labelled, then, after a gap, of others that
    haven't changed, with the gap between those with intents and without that is in `order_N`.
    """
    ranked = np.argsort(order_N, kind="stable")
    ranked = ranked[order_N[ranked] >= 0]
    ascending = order_N[ranked]
    num_gaps = np.cumsum(np.diff(ascending, prepend=ascending[:1]) > 1)  # before each
    order = {row: index for index, row in enumerate(labelled)}
    others = [(row, gaps) for row, gaps in zip(ranked.tolist(), num_gaps.tolist(), strict=True)]
    others = [(row, gaps) for row, gaps in others if row not in order and row not in changed]
    first = others[0][1] - bool(order) if others else 0
    return order | {row: index + gaps - first for index, (row, gaps) in enumerate(others, len(order))}


def write_relabelled(
    out: Path,
    data: Path,
    pool_set: PoolSet,
    labels: Labels,
    annotations: Sequence[Annotation],
    soft: SoftLabels = NO_SOFT_LABELS,
) -> None:
    """Write a pool folder with other labels, their annotations and soft labels, whole or not at all."""
    with atomic_dir(out) as folder:
        write_annotations(folder, annotations)
        soft.write(folder)
        answers = facts_of(folder / ANNOTATIONS_FILE)["sha256"]
        inputs = {**prepared_inputs(data), "labels": answers, "labels_of": pool_set.digest}
        splits: dict[Split, SplitWriter] = {}
        for split in SPLITS:
            with SplitWriter(folder, split, inputs) as splits[split]:
                for row in labels.applied(data, split):
                    splits[split].add(row)
        if (data / LOGS_FILE).is_file():
            shutil.copyfile(data / LOGS_FILE, folder / LOGS_FILE)
        changes = {
            "name": out.name,
            **described(splits),
            "soft_labels": soft.sources,
            "default_labelled_fraction": len(labels.labelled) / labels.num_pools,
            "created_with": f"icalib {__version__}",
            "files": {path.name: facts_of(path) for path in sorted(folder.iterdir())},
            "intents": tuple(sorted({*pool_set.intents, *labels.intents})),
            "intents_in": tuple(
                one for one in SPLITS if one in pool_set.intents_in or (one == "train" and labels.intents)
            ),
        }
        write_json(folder / POOLS_FILE, pool_set.model_copy(update=changes).sealed().model_dump())
    push(out)
