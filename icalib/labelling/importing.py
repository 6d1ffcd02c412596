"""From annotators' files to a new pool folder: the same pools with their labels, the labelled ones first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from icalib.core.errors import DataError
from icalib.core.files import check_empty, is_file
from icalib.core.storage import pull
from icalib.data.pools import iter_pools, read_pool_set
from icalib.data.schema import NONE_RIGHT, UNKNOWN_LABEL, SoftLabelSource, Split
from icalib.data.sources.records import Raw
from icalib.data.sources.rows import kind_of
from icalib.labelling import label_studio, model_answers
from icalib.labelling.annotations import (
    Annotation,
    Answer,
    annotations_by_pool,
    by_model,
    filled_rows,
    latest,
    plain,
    read_annotations,
)
from icalib.labelling.consensus import Agreement, agreement, majority, majority_intents
from icalib.labelling.model_answers import is_record
from icalib.labelling.relabelled import Labels, write_relabelled
from icalib.labelling.soft_labels import SoftLabels
from icalib.labelling.table import read_table
from icalib.metrics.calibration import fraction_interval

_EXPECTED = (
    "Expected Label Studio's export as JSON (not JSON-MIN), a .csv table of `icalib label next`, or answers of "
    "`icalib label ask`."
)
_CURE = "Label a batch of `icalib label next`, its data unchanged, and export it again"


def read_answers(path: Path) -> list[Answer]:
    """Return the answers of a file; a DataError names the line of a record that is not valid."""
    if not is_file(path):
        raise DataError("no such file", "Check the path.", path=path)
    if kind_of(path) == "csv":
        answers = list(read_table(path))
    else:
        answers = [answer for record in filled_rows(path, _CURE) for answer in _answers(record)]
    if not answers:
        raise DataError("the file has no answers", _EXPECTED, path=path)
    return answers


def _answers(record: Raw) -> Iterator[Answer]:
    if label_studio.is_task(record.value):
        return label_studio.read_task(record)
    if model_answers.is_record(record.value):
        return model_answers.read_record(record)
    raise record.error("found a record of an unknown format", _EXPECTED)


@dataclass(frozen=True)
class Imported:
    """A new pool folder, and what the annotators' file changed in it.

    Args:
        path: the folder.
        num_annotated: pools of the file that have a label now.
        annotators: people who gave the file's answers.
        num_replaced: their answers that differ from an earlier one of the same person about the same pool.
        num_older: their answers that don't count, since the folder has later ones of the same person.
        num_labelled, num_training: labelled and all training pools of the folder.
        unfinished: pools of the file without a finished answer.
        conflicts: pools of the file whose annotators disagree, which get no label.
        agreement: of the annotators, over all pools that several annotated; None without such.
        num_known: annotated pools without a conflict whose earlier label no annotator gave, e.g. the reply of the log.
        num_confirmed: those of them whose label the annotators say is right.
        confirmed_interval: 95 % interval of their fraction, if the pools were drawn at random.
        soft_labels: the models that gave soft labels of other pools, in this file or before.
        num_elsewhere: answers of models in the file about pools that aren't training pools of the folder.
        new_intents: intents of the file that the folder didn't have.
    """

    path: Path
    num_annotated: int
    annotators: tuple[str, ...]
    num_replaced: int
    num_older: int
    num_labelled: int
    num_training: int
    unfinished: tuple[str, ...]
    conflicts: tuple[str, ...]
    agreement: Agreement | None
    num_known: int
    num_confirmed: int
    confirmed_interval: tuple[float, float]
    soft_labels: tuple[SoftLabelSource, ...] = ()
    num_elsewhere: int = 0
    new_intents: tuple[str, ...] = ()


@dataclass(frozen=True)
class Target:
    """A pool that was annotated."""

    row: int
    candidates: tuple[str, ...]
    context: tuple[str, ...]
    label: int


def import_labels(file: Path, data: Path, out: Path) -> Imported:
    """Write the pools of `data` with the labels of an annotators' file to the new folder `out`, whole or not at all.

    Labelled pools come first in `label_order`: those that were labelled before, in their order, and then those of the
    file. Pools that nobody annotated keep their labels. Earlier annotations of the pools count too; of one annotator
    and pool, the later one does. What language models say becomes soft labels, of which only training knows.

    Raises:
        DataError: a record is not valid, is of other pools, or no pool gets or loses a label; or a model's answers
            can't be used (`SoftLabels.of`).
        SettingError: `out` exists.
    """
    pull(file)
    pull(out)
    check_empty(out)
    pool_set, answers, earlier = read_pool_set(data), read_answers(file), read_annotations(data)
    was_annotated = {annotation.pool_id for annotation in earlier if not by_model(annotation)}
    targets = find_targets(data, "train", {one.pool_id for one in (*earlier, *answers)})
    # a model may have been asked about other splits and folders, too; without an answer about this one, it is wrong
    here = [one for one in answers if one.pool_id in targets or not is_record(one.raw.value)]
    num_elsewhere, answers = (len(answers) - len(here), here) if here else (0, answers)
    check_answers(answers, targets, data, "training")
    finished = [answer.annotation for answer in answers if answer.annotation]
    annotations = list(latest([*earlier, *finished]))
    by_pool = annotations_by_pool([one for one in annotations if not by_model(one)])
    of_people = [one.pool_id for one in finished if not by_model(one)]
    before, kept = _by_person(earlier), _by_person(annotations)
    given = _by_person(finished)
    verdicts = {name: majority(by_pool[name], len(targets[name].candidates)) for name in of_people}
    conflicts = tuple(name for name, right in verdicts.items() if right is None)
    labels = Labels(data, pool_set)
    was_labelled = was_annotated | {name for name in conflicts if targets[name].row in labels.labelled}
    if len(of_people) == len(finished) and set(conflicts) - was_labelled == set(verdicts):
        raise DataError(*_nothing_to_import(conflicts), path=file)
    answered = {one.pool_id for one in finished}
    confirmed = [
        label in (right or (NONE_RIGHT,))
        for name, right in verdicts.items()
        if right is not None and name not in was_annotated and (label := targets[name].label) != UNKNOWN_LABEL
    ]
    for name, right in verdicts.items():
        if right is not None:
            labels.set(targets[name].row, right, majority_intents(by_pool[name], len(targets[name].context)))
        elif name in was_labelled:
            labels.forget(targets[name].row)
    new_models = {one.annotator for one in finished if by_model(one)}
    soft = SoftLabels.of(annotations, labels.right(data), new_models, pool_set.num_candidates)
    write_relabelled(out, data, pool_set, labels, annotations, soft)
    return Imported(
        path=out,
        num_annotated=len(verdicts) - len(conflicts),
        annotators=tuple(sorted({name for _, name in given})),
        num_replaced=sum(key in before and kept[key].right != before[key].right for key in given),
        num_older=sum(key in before and kept[key] is before[key] for key in given),
        num_labelled=len(labels.labelled),
        num_training=labels.num_pools,
        unfinished=tuple(dict.fromkeys(one.pool_id for one in answers if one.pool_id not in answered)),
        conflicts=conflicts,
        agreement=agreement(by_pool, {name: len(target.candidates) for name, target in targets.items()}),
        num_known=len(confirmed),
        num_confirmed=sum(confirmed),
        confirmed_interval=fraction_interval(sum(confirmed), len(confirmed)),
        num_elsewhere=num_elsewhere,
        new_intents=tuple(sorted(labels.intents.difference(pool_set.intents))),
        soft_labels=soft.sources,
    )


def _by_person(annotations: Sequence[Annotation]) -> dict[tuple[str, str], Annotation]:
    """Return the last of people's annotations by pool and annotator."""
    return {(one.pool_id, one.annotator): one for one in annotations if not by_model(one)}


def _nothing_to_import(conflicts: Sequence[str]) -> tuple[str, str]:
    """Return what was found in a file that would change no label, and what to do."""
    if not conflicts:
        return "no pool has a finished answer", "Label some pools first."
    named = f"{', '.join(conflicts[:3])}{' …' * (len(conflicts) > 3)}"
    found = f"the annotators disagree on all {len(conflicts)} pools with a finished answer ({named})"
    return found, "Expected a pool with a majority: let them decide some, and export the answers again."


def find_targets(data: Path, split: Split, wanted: Set[str]) -> dict[str, Target]:
    """Return the pools of a split that are annotated, by id."""
    batches = iter_pools(data, split, ["pool_id", "candidates", "context", "label"])
    rows = (row for batch in batches for row in batch.to_pylist())
    return {
        row["pool_id"]: Target(
            number, tuple(row["candidates"]), tuple(one["text"] for one in row["context"]), row["label"]
        )
        for number, row in enumerate(rows)
        if row["pool_id"] in wanted
    }


def check_answers(answers: Sequence[Answer], targets: Mapping[str, Target], data: Path, which: str) -> None:
    """Refuse an answer about a pool that isn't one of `which`, or had other candidates when it was annotated."""
    for answer in answers:
        if answer.pool_id not in targets:
            raise answer.raw.error(
                f"{data} has no {which} pool {answer.pool_id!r:.80}",
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
