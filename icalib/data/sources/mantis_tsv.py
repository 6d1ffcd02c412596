"""MANtIS' TSV for ranking responses (Penha et al. 2019).

`label \\t utterance_1 \\t ... \\t utterance_n \\t candidate`; consecutive lines with one context are a pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from icalib.data.schema import Pool
from icalib.data.sources.base import Reader, Source, alternating, pool_from, records_in, spaced
from icalib.data.sources.files import files_in, first_line, read_lines, required_files, required_split
from icalib.data.sources.records import Raw, joined


def _open(path: Path) -> Source:
    """Open one TSV file whose name has its split, or a folder of them."""
    files = required_files(path, ".tsv")
    for file in files:
        required_split(file)
    return Source(files, pools=records_in(files, _groups, _pool, "pool_id"))


def _detects(path: Path) -> bool:
    first = [first_line(file).split("\t") for file in files_in(path, ".tsv")]
    return any(fields[0] in ("0", "1") and len(fields) > 2 for fields in first)


def _groups(file: Path) -> Iterator[Raw]:
    """Join the lines of one pool: the same context, and no second right candidate."""
    group: list[Raw] = []
    has_right = False
    for line in read_lines(file):
        label, context, _ = _parts(line)
        if group and (context != _parts(group[0])[1] or (label == "1" and has_right)):
            yield joined(group)
            group, has_right = [], False
        group.append(line)
        has_right = has_right or label == "1"
    if group:
        yield joined(group)


def _parts(line: Raw) -> tuple[str, str, str]:
    label, _, rest = line.text.partition("\t")
    context, _, candidate = rest.rpartition("\t")
    return label.strip(), context, candidate


def _pool(raw: Raw) -> Pool:
    right, wrong, turns = list[str](), list[str](), ""
    for line in raw.value:
        label, turns, candidate = _parts(line)
        if label not in ("0", "1"):
            raise line.error(f'found label "{label[:20]}", expected 0 or 1', field="label")
        if not turns or not candidate.strip():
            raise line.error("found no context or no candidate", field="candidate")
        (right if label == "1" else wrong).append(candidate)
    if len(right) != 1:
        raise raw.error(
            f"found {len(right)} right candidates in the {len(raw.value)} lines of one context, expected 1",
            field="label",
        )
    split = required_split(raw.path)
    context = alternating(spaced(text) for text in turns.split("\t") if text.strip())
    return pool_from(raw, f"mantis-{split}-{raw.line}", split, context, right, wrong, "mantis")


mantis_tsv = Reader(_open, _detects)
