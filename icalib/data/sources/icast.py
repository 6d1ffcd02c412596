"""The ICAST authors' folders (Deng et al. 2023): train, valid, test and optionally unlabeled, each with

context.tsv            utterance, tags, utterance, tags, ... (tags joined by `_`, may be empty);
                       in `unlabeled` utterances only
answer.tsv             the right answer
negative_sampling.tsv  the wrong ones, tab-separated, short lines padded with empty fields

one line a pool, aligned by line number. `unlabeled` pools are training pools without intents, so they become
labelled last.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from icalib.core.errors import DataError
from icalib.data.schema import Pool, Split
from icalib.data.sources.base import Reader, Source, alternating, pool_from, records_in, spaced
from icalib.data.sources.files import all_lines
from icalib.data.sources.records import Raw

FOLDERS: dict[str, Split] = {"train": "train", "unlabeled": "train", "valid": "validation", "test": "test"}
COLUMNS = ("context.tsv", "answer.tsv", "negative_sampling.tsv")


def _open(path: Path) -> Source:
    folders = [path / name for name in FOLDERS if (path / name).is_dir()]
    files = tuple(_file(folder, column) for folder in folders for column in COLUMNS)
    if not files:
        raise DataError(
            f"found none of the folders {', '.join(FOLDERS)}", "Name the folder that holds them.", path=path
        )
    return Source(files, pools=records_in(folders, _aligned, _pool, "pool_id"), accepted_only=True)


def _detects(path: Path) -> bool:
    return any((path / "train" / name).is_file() for name in ("context.tsv", "context.tsv.gz"))


def _file(folder: Path, name: str) -> Path:
    for file in (folder / name, folder / f"{name}.gz"):
        if file.is_file():
            return file
    raise DataError(f"found no {name}", "Each of the folders needs context, answer and negatives.", path=folder)


def _aligned(folder: Path) -> Iterator[Raw]:
    files = [_file(folder, column) for column in COLUMNS]
    # blank lines too, since the files are aligned by line number
    for number, row in enumerate(zip_longest(*map(all_lines, files)), 1):
        if None in row:
            short = files[row.index(None)]
            raise DataError(
                f"ends before line {number}, but another file of the folder continues",
                f"{', '.join(COLUMNS)} must have the same number of lines.",
                path=short,
                line=number,
            )
        problem = next((f"{line.problem} in {line.path.name}" for line in row if line.problem), "")
        texts = [line.text for line in row]
        yield Raw(files[0], number, "\n".join(texts), texts, problem=problem)


def _pool(raw: Raw) -> Pool:
    context, answer, negatives = raw.value
    folder = raw.path.parent.name
    split = FOLDERS[folder]
    fields = context.split("\t")
    if folder == "unlabeled":
        texts, tags = fields, [""] * len(fields)
    elif len(fields) % 2:
        found = f"found {len(fields)} fields, expected an even number: utterance, tags, ..."
        raise raw.error(found, field="context.tsv")
    else:
        texts, tags = fields[::2], fields[1::2]
    utterances = [
        utterance | {"intents": [name for name in tag.strip().split("_") if name]}
        for utterance, tag in zip(alternating(map(spaced, texts)), tags, strict=True)
    ]
    if not answer.strip():
        raise raw.error("found an empty answer", field="answer.tsv")
    return pool_from(raw, f"icast-{folder}-{raw.line}", split, utterances, [answer], negatives.split("\t"), "icast")


icast = Reader(_open, _detects)
