"""What annotators said about pools, as files of any format give it and as `annotations.parquet` keeps it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from icalib.core.parquet import read_parquet
from icalib.data.schema import ANNOTATIONS_FILE, Pool
from icalib.data.sources.records import Raw
from icalib.data.sources.rows import read_rows, row_of

ANNOTATION_SCHEMA = pa.schema(
    [
        ("pool_id", pa.string()),
        ("annotator", pa.string()),
        ("when", pa.timestamp("ms", "UTC")),  # null where the file doesn't say it
        ("right", pa.list_(pa.int32())),  # indices of candidates, from 0; empty: none is right
        ("intents", pa.list_(pa.list_(pa.string()))),  # of each utterance; empty where there are none
    ]
)
NONE_OF_THESE = "none of these"
MODEL_PREFIX = "llm:"
"""Begins the names of annotators that are language models, whose answers never count as people's."""


@dataclass(frozen=True)
class Annotation:
    """What one annotator said about one pool; the fields are those of ANNOTATION_SCHEMA."""

    pool_id: str
    annotator: str
    when: datetime | None
    right: tuple[int, ...]
    intents: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Answer:
    """One answer in a file: `annotation` is None where it is skipped or unfinished.

    `candidates` are the texts that the annotator saw, by which a label can't land on another candidate.
    """

    raw: Raw
    pool_id: str
    candidates: tuple[str, ...]
    annotation: Annotation | None = None


def filled_rows(path: Path, cure: str) -> Iterator[Raw]:
    """Yield the rows of an annotators' file, parsed; `cure` says what to do about a row that is wrong."""
    for raw in (replace(raw, cure=cure) for raw in read_rows(path)):
        yield replace(raw, value=row_of(raw))


def read_annotations(folder: Path) -> list[Annotation]:
    """Return the annotations that a pool folder was labelled with; none if it was not labelled by `label import`."""
    path = folder / ANNOTATIONS_FILE
    if not path.is_file():
        return []
    return [
        Annotation(
            row["pool_id"], row["annotator"], row["when"], tuple(row["right"]), tuple(map(tuple, row["intents"]))
        )
        for row in read_parquet(path, schema=ANNOTATION_SCHEMA).to_pylist()
    ]


def write_annotations(folder: Path, annotations: Sequence[Annotation]) -> None:
    """Write `annotations.parquet` into a pool folder."""
    rows = [vars(annotation) for annotation in annotations]
    pq.write_table(pa.Table.from_pylist(rows, schema=ANNOTATION_SCHEMA), folder / ANNOTATIONS_FILE)


def by_model(annotation: Annotation) -> bool:
    """Return whether a language model gave an annotation."""
    return annotation.annotator.startswith(MODEL_PREFIX)


def numbered(pool: Pool) -> list[str]:
    """Return a pool's candidates as annotators see them: with numbers from 1."""
    return [f"{number}. {text}" for number, text in enumerate(pool.candidates, 1)]


def plain(text: str) -> str:
    """Return a text as it is compared: annotation tools and spreadsheets change white space."""
    return " ".join(text.split())


def candidate_index(choice: str, candidates: Sequence[str], raw: Raw, field: str) -> int:
    """Return the index, from 0, of a choice: a candidate's number from 1, or its number and text."""
    number = choice.partition(".")[0].strip()
    index = int(number) - 1 if number.isdecimal() else -1
    if 0 <= index < len(candidates) and plain(choice) in (number, plain(f"{number}. {candidates[index]}")):
        return index
    raise raw.error(
        f"found the choice {choice!r:.80}",
        f"Expected a candidate's number from 1 to {len(candidates)}, or {NONE_OF_THESE!r}: as `icalib label next` "
        "wrote them.",
        field,
    )


def right_of(choices: Sequence[str], candidates: Sequence[str], raw: Raw, field: str) -> tuple[int, ...] | None:
    """Return the indices of the right candidates, ascending; empty for none of these, None without any choice.

    A DataError says that a choice is no candidate, or that none is right and one is.
    """
    if not choices:
        return None
    given = [choice for choice in choices if plain(choice) != NONE_OF_THESE]
    if given and len(given) < len(choices):
        raise raw.error(
            f"found {NONE_OF_THESE!r} together with a candidate",
            "Expected one of both: correct this answer where it was given, and export it again.",
            field,
        )
    return tuple(sorted({candidate_index(choice, candidates, raw, field) for choice in given}))


def latest(annotations: Sequence[Annotation]) -> Iterator[Annotation]:
    """Yield the last annotation of each pool and annotator, in the order in which pools were first annotated."""
    kept: dict[tuple[str, str], Annotation] = {}
    for annotation in annotations:
        key = annotation.pool_id, annotation.annotator
        earlier = kept.get(key)
        if earlier and earlier.when and annotation.when and annotation.when < earlier.when:
            continue
        kept[key] = annotation
    yield from kept.values()


def annotations_by_pool(annotations: Sequence[Annotation]) -> dict[str, list[Annotation]]:
    """Return the annotations of each pool, in their order."""
    found: dict[str, list[Annotation]] = {}
    for annotation in annotations:
        found.setdefault(annotation.pool_id, []).append(annotation)
    return found
