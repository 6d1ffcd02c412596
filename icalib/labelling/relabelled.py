"""Writing a pool folder again with other labels of its training pools."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from icalib.core.contents import facts_of
from icalib.core.files import atomic_dir, content_digest, write_json
from icalib.core.storage import push
from icalib.core.version import __version__
from icalib.data.logs import LOGS_FILE
from icalib.data.pools import INPUTS_KEY, iter_pools, prepared_inputs, read_column, row_digest, split_file
from icalib.data.schema import NONE_RIGHT, POOL_SCHEMA, POOLS_FILE, SPLITS, UNKNOWN_LABEL, PoolSet, Split, right_indices
from icalib.labelling.annotations import ANNOTATIONS_FILE, Annotation, write_annotations
from icalib.labelling.choose import labelled_rows
from icalib.labelling.consensus import Right

Change = Callable[[int, dict[str, Any]], None]
"""change(number, row): changes a row of a split in place."""


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

    def forget(self, row: int) -> None:
        """Make a pool's label unknown, which an earlier import has set."""
        self._labels[row] = {"label": UNKNOWN_LABEL, "also_right": []}
        self._labelled.pop(row, None)

    def change(self) -> Change:
        """Return what changes the training pools: labelled ones first, then known ones as before, and −1 for others."""
        ranked: list[int] = np.argsort(self._order, kind="stable").tolist()
        changed = self._labelled.keys() | self._labels.keys()
        known = [row for row in ranked if self._order[row] >= 0 and row not in changed]
        order = {row: index for index, row in enumerate([*self._labelled, *known])}

        def change(number: int, row: dict[str, Any]) -> None:
            row.update({**self._labels.get(number, {}), "label_order": order.get(number, -1)})
            for utterance, intents in zip(row["context"], self._intents.get(number, []), strict=False):
                utterance["intents"] = intents or utterance["intents"]

        return change


def write_relabelled(
    out: Path, data: Path, pool_set: PoolSet, labels: Labels, annotations: Sequence[Annotation]
) -> None:
    """Write a pool folder with other labels and their annotations, whole or not at all."""
    with atomic_dir(out) as folder:
        write_annotations(folder, annotations)
        answers = facts_of(folder / ANNOTATIONS_FILE)["sha256"]
        inputs = {**prepared_inputs(data), "labels": answers, "labels_of": pool_set.digest}
        schema = POOL_SCHEMA.with_metadata({INPUTS_KEY: json.dumps(inputs)})
        digests: dict[str, str] = {}
        found, nothing = Counter[str](), Counter[str]()
        for split in SPLITS:
            change, counts = (labels.change(), found) if split == "train" else (_keep, nothing)
            digests[split] = _write_split(folder, data, split, schema, change, counts)
        if (data / LOGS_FILE).is_file():
            shutil.copyfile(data / LOGS_FILE, folder / LOGS_FILE)
        changes = {
            "name": out.name,
            "digest": content_digest(digests),
            "default_labelled_fraction": len(labels.labelled) / labels.num_pools,
            "created_with": f"icalib {__version__}",
            "files": {path.name: facts_of(path) for path in sorted(folder.iterdir())},
            **_described(pool_set, found),
        }
        write_json(folder / POOLS_FILE, pool_set.model_copy(update=changes).sealed().model_dump())
    push(out)


def _keep(number: int, row: dict[str, Any]) -> None:
    pass


def _write_split(
    folder: Path, data: Path, split: Split, schema: pa.Schema, change: Change, counts: Counter[str]
) -> str:
    """Write a split, count what its pools have, and return its digest."""
    digest, start = hashlib.sha256(), 0
    with pq.ParquetWriter(folder / split_file(split), schema, compression="zstd") as writer:
        for batch in iter_pools(data, split):
            group = batch.to_pylist()
            for number, row in enumerate(group, start):
                change(number, row)
                digest.update(row_digest(row))
                counts.update(_counts(row))
            start += len(group)
            writer.write_table(pa.Table.from_pylist(group, schema=schema))
    return digest.hexdigest()


def _counts(row: dict[str, Any]) -> Counter[str]:
    right = right_indices(row["label"], row["also_right"])
    intents = Counter(f"intent {intent}" for utterance in row["context"] for intent in utterance["intents"])
    of_pool = {"unanswerable": row["label"] == NONE_RIGHT, "several": len(right) > 1, "answerable": bool(right)}
    return intents + Counter({"right": len(right), **of_pool})


def _described(pool_set: PoolSet, train: Counter[str]) -> dict[str, Any]:
    """Return the metadata that depend on the training pools' labels."""
    intents = {name.removeprefix("intent ") for name in train if name.startswith("intent ")}
    mean_right = train["right"] / train["answerable"] if train["several"] else 0
    return {
        "num_unanswerable": _with_train(pool_set.num_unanswerable, train["unanswerable"]),
        "num_several_right": _with_train(pool_set.num_several_right, train["several"]),
        "mean_right": _with_train(pool_set.mean_right, mean_right),
        "intents": tuple(sorted({*pool_set.intents, *intents})),
        "intents_in": tuple(one for one in SPLITS if one in pool_set.intents_in or (one == "train" and intents)),
    }


def _with_train(values: Mapping[str, Any], train: float) -> dict[str, Any]:
    """Return values by split with those of the training pools, if there are any."""
    others = {split: value for split, value in values.items() if split != "train"}
    return {"train": train, **others} if train else others
