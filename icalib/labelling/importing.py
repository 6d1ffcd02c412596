"""From annotators' files to a new pool folder: the same pools with their labels, the labelled ones first."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from icalib.core.contents import facts_of
from icalib.core.errors import DataError
from icalib.core.files import atomic_dir, check_empty, content_digest, is_file, write_json
from icalib.core.storage import pull, push
from icalib.core.version import __version__
from icalib.data.logs import LOGS_FILE
from icalib.data.pools import (
    INPUTS_KEY,
    iter_pools,
    prepared_inputs,
    read_column,
    read_pool_set,
    row_digest,
    split_file,
)
from icalib.data.schema import NONE_RIGHT, POOL_SCHEMA, POOLS_FILE, SPLITS, UNKNOWN_LABEL, PoolSet, right_indices
from icalib.data.selection import Rows
from icalib.data.sources.files import first_line, json_items, read_lines
from icalib.data.sources.records import Raw, parse_json, refuse_bad_bytes
from icalib.labelling import argilla, label_studio
from icalib.labelling.annotations import (
    ANNOTATIONS_FILE,
    Annotation,
    Answer,
    broken,
    latest,
    plain,
    read_annotations,
    write_annotations,
)
from icalib.labelling.choose import labelled_rows
from icalib.labelling.consensus import Agreement, Right, agreement, majority, majority_intents
from icalib.labelling.table import read_table

_EXPECTED = (
    "Expected Label Studio's export as JSON (not JSON-MIN), Argilla's records as JSON or JSONL, or a .csv table of "
    "`icalib label next`."
)
_CURE = "Label a batch of `icalib label next`, its data unchanged, and export it again"


@dataclass(frozen=True)
class Imported:
    """A new pool folder, and what the annotators' file changed in it.

    Args:
        path: the folder.
        num_annotated: pools of the file that have a label now.
        num_labelled, num_training: labelled and all training pools of the folder.
        unfinished: pools of the file without a finished answer.
        conflicts: pools whose annotators disagree, which get no label.
        agreement: of the annotators, over all pools that several annotated; None without such.
    """

    path: Path
    num_annotated: int
    num_labelled: int
    num_training: int
    unfinished: tuple[str, ...]
    conflicts: tuple[str, ...]
    agreement: Agreement | None


@dataclass(frozen=True)
class _Target:
    """A training pool that was annotated."""

    row: int
    candidates: tuple[str, ...]
    num_utterances: int


def read_answers(path: Path) -> list[Answer]:
    """Return the answers of a file, whose format is detected; a DataError names the record that is not valid."""
    if not is_file(path):
        raise DataError("no such file", "Check the path.", path=path)
    answers = list(read_table(path) if path.suffix.lower() == ".csv" else _json_answers(path))
    if not answers:
        raise broken(path, "the file has no answers", _EXPECTED)
    return answers


def _json_answers(path: Path) -> Iterator[Answer]:
    for record in _records(path):
        if isinstance(record.value, dict) and label_studio.is_task(record.value):
            yield from label_studio.read_task(record)
        elif isinstance(record.value, dict) and argilla.is_record(record.value):
            yield from argilla.read_record(record)
        else:
            raise record.error("found a record of an unknown format", _EXPECTED)


def _records(path: Path) -> Iterator[Raw]:
    """Yield the parsed records of a JSON array or of JSON lines."""
    is_list = first_line(path).lstrip().startswith("[")
    try:
        for raw in json_items(path) if is_list else read_lines(path, _CURE):
            refuse_bad_bytes(raw)
            yield Raw(path, raw.line, raw.text, raw.value if is_list else parse_json(raw), cure=_CURE)
    except DataError as error:
        raise DataError(error.found, f"{_CURE}.", path=path, line=error.line) from error


def import_labels(file: Path, data: Path, out: Path) -> Imported:
    """Write the pools of `data` with the labels of an annotators' file to the new folder `out`, whole or not at all.

    Labelled pools come first in `label_order`: those that were labelled before, in their order, and then those of the
    file. Pools that nobody annotated keep their labels. Earlier annotations of the pools count too; of one annotator
    and pool, the later one does.

    Raises:
        DataError: a record is not valid, is of other pools, or no pool gets a label.
        SettingError: `out` exists.
    """
    pull(file)
    pull(out)
    check_empty(out)
    pool_set = read_pool_set(data)
    answers = read_answers(file)
    earlier = read_annotations(data)
    was_annotated = {annotation.pool_id for annotation in earlier}
    targets = _targets(data, {*was_annotated, *(answer.pool_id for answer in answers)})
    _check(answers, targets, data)
    finished = [answer.annotation for answer in answers if answer.annotation]
    annotations = list(latest([*earlier, *finished]))
    by_pool: dict[str, list[Annotation]] = {}
    for annotation in annotations:
        by_pool.setdefault(annotation.pool_id, []).append(annotation)
    new_ids = list(dict.fromkeys(annotation.pool_id for annotation in finished))
    verdicts = {name: majority(by_pool[name], len(targets[name].candidates)) for name in new_ids}
    if not any(right is not None for right in verdicts.values()):
        raise broken(file, "no pool has a finished answer that its annotators agree on", "Label some pools first.")
    labels = _Labels(pool_set, read_column(data, "train", "label_order"))
    for name, right in verdicts.items():
        if right is not None:
            labels.set(targets[name].row, right, majority_intents(by_pool[name], targets[name].num_utterances))
        elif name in was_annotated:
            labels.forget(targets[name].row)
    with atomic_dir(out) as folder:
        write_annotations(folder, annotations)
        _write(folder, out.name, data, pool_set, labels)
    push(out)
    return Imported(
        path=out,
        num_annotated=sum(right is not None for right in verdicts.values()),
        num_labelled=len(labels.labelled),
        num_training=len(labels.order),
        unfinished=tuple(dict.fromkeys(one.pool_id for one in answers if one.pool_id not in verdicts)),
        conflicts=tuple(name for name, right in verdicts.items() if right is None),
        agreement=agreement(by_pool, {name: len(target.candidates) for name, target in targets.items()}),
    )


def _targets(data: Path, wanted: Set[str]) -> dict[str, _Target]:
    """Return the training pools that are annotated, by id."""
    rows = (
        row for batch in iter_pools(data, "train", ["pool_id", "candidates", "context"]) for row in batch.to_pylist()
    )
    return {
        row["pool_id"]: _Target(number, tuple(row["candidates"]), len(row["context"]))
        for number, row in enumerate(rows)
        if row["pool_id"] in wanted
    }


def _check(answers: Sequence[Answer], targets: Mapping[str, _Target], data: Path) -> None:
    """Refuse an answer about a pool that isn't a training pool, or had other candidates when it was annotated."""
    for answer in answers:
        if answer.pool_id not in targets:
            raise answer.raw.error(
                f"{data} has no training pool {answer.pool_id!r:.80}",
                "Name the pool folder that the batch was chosen from.",
                "pool_id",
            )
        if list(map(plain, answer.candidates)) != list(map(plain, targets[answer.pool_id].candidates)):
            raise answer.raw.error(
                f"the candidates of pool {answer.pool_id!r:.80} are not those of {data}",
                "A label could land on another candidate: name the pool folder that the batch was chosen from, and "
                "leave the texts as they were.",
                "candidates",
            )


class _Labels:
    """The training pools' new labels and their order; `labelled` has the rows of labelled pools, in that order."""

    def __init__(self, pool_set: PoolSet, label_order: Rows) -> None:
        self.order = label_order
        self.labelled: list[int] = labelled_rows(pool_set, label_order).tolist()
        self._changes: dict[int, dict[str, Any]] = {}
        self._intents: dict[int, list[list[str]]] = {}

    def set(self, row: int, right: Right, intents: list[list[str]]) -> None:
        """Label a pool; utterances without intents keep those that they had."""
        self._changes[row] = {"label": right[0] if right else NONE_RIGHT, "also_right": list(right[1:])}
        self._intents[row] = intents
        if row not in self.labelled:
            self.labelled.append(row)

    def forget(self, row: int) -> None:
        """Make a pool's label unknown, which an earlier import has set."""
        self._changes[row] = {"label": UNKNOWN_LABEL, "also_right": []}
        self.labelled = [other for other in self.labelled if other != row]

    def new_order(self) -> list[int]:
        """Return `label_order`: labelled pools, then others whose label is known as before, and −1 for the rest."""
        first, unknown = set(self.labelled), {row for row in self._changes if row not in self.labelled}
        ranked: list[int] = np.argsort(self.order, kind="stable").tolist()
        known = [row for row in ranked if self.order[row] >= 0 and row not in first and row not in unknown]
        order = [-1] * len(self.order)
        for index, row in enumerate([*self.labelled, *known]):
            order[row] = index
        return order

    def change(self, number: int, row: dict[str, Any]) -> None:
        """Change the training pool of this number in place."""
        row.update(self._changes.get(number, {}))
        for utterance, intents in zip(row["context"], self._intents.get(number, []), strict=False):
            utterance["intents"] = intents or utterance["intents"]


def _write(folder: Path, name: str, data: Path, pool_set: PoolSet, labels: _Labels) -> None:
    """Write the files of a pool folder: all pools again, with other labels in the training pools."""
    inputs = {**prepared_inputs(data), "labels": facts_of(folder / ANNOTATIONS_FILE)["sha256"], "of": pool_set.digest}
    schema, order = POOL_SCHEMA.with_metadata({INPUTS_KEY: json.dumps(inputs)}), labels.new_order()
    digests: dict[str, str] = {}
    counts, intents = Counter[str](), set(pool_set.intents)
    for split in SPLITS:
        digest, start = hashlib.sha256(), 0
        with pq.ParquetWriter(folder / split_file(split), schema, compression="zstd") as writer:
            for batch in iter_pools(data, split):
                group = batch.to_pylist()
                for number, row in enumerate(group, start):
                    if split == "train":
                        labels.change(number, row)
                        row["label_order"] = order[number]
                        counts.update(_counts(row))
                        intents.update(intent for utterance in row["context"] for intent in utterance["intents"])
                    digest.update(row_digest(row))
                start += len(group)
                writer.write_table(pa.Table.from_pylist(group, schema=schema))
        digests[split] = digest.hexdigest()
    if (data / LOGS_FILE).is_file():
        shutil.copyfile(data / LOGS_FILE, folder / LOGS_FILE)
    mean_right = counts["right"] / counts["answerable"] if counts["several"] else 0
    changes = {
        "name": name,
        "digest": content_digest(digests),
        "default_labelled_fraction": len(labels.labelled) / len(order),
        "num_unanswerable": _with_train(pool_set.num_unanswerable, counts["unanswerable"]),
        "num_several_right": _with_train(pool_set.num_several_right, counts["several"]),
        "mean_right": _with_train(pool_set.mean_right, mean_right),
        "intents": tuple(sorted(intents)),
        "intents_in": tuple(s for s in SPLITS if s in pool_set.intents_in or (s == "train" and counts["intents"])),
        "created_with": f"icalib {__version__}",
        "files": {path.name: facts_of(path) for path in sorted(folder.iterdir())},
    }
    write_json(folder / POOLS_FILE, pool_set.model_copy(update=changes).sealed().model_dump())


def _counts(row: dict[str, Any]) -> dict[str, int]:
    right = right_indices(row["label"], row["also_right"])
    return {
        "unanswerable": int(row["label"] == NONE_RIGHT),
        "several": int(len(right) > 1),
        "right": len(right),
        "answerable": int(bool(right)),
        "intents": int(any(utterance["intents"] for utterance in row["context"])),
    }


def _with_train(values: Mapping[str, Any], train: float) -> dict[str, Any]:
    """Return values by split with those of the training pools, if there are any."""
    others = {split: value for split, value in values.items() if split != "train"}
    return {"train": train, **others} if train else others
