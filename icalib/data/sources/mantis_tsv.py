"""MANtIS' TSV for ranking responses (Penha et al. 2019).

`label \\t utterance_1 \\t ... \\t utterance_n \\t candidate`; consecutive lines with one context are a pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from icalib.data.schema import Pool
from icalib.data.sources.base import Reader, Source, alternating, pool_from, pools_in, spaced
from icalib.data.sources.files import files_of, first_line, named_files, read_lines, required_split
from icalib.data.sources.grouping import joined
from icalib.data.sources.records import Raw


def _open(path: Path) -> Source:
    """Open one TSV file whose name has its split, or a folder of them."""
    files = files_of(path, ".tsv")
    for file in files:
        required_split(file)
    return Source(files, pools=pools_in(files, _groups, _pool))


def _detects(path: Path) -> bool:
    first = [first_line(file).split("\t") for file in named_files(path, ".tsv")]
    return any(fields[0] in ("0", "1") and len(fields) > 2 for fields in first)


def _groups(file: Path) -> Iterator[Raw]:
    """Join the lines of one pool: the same context, and no second right candidate."""
    group: list[Raw] = []
    for line in read_lines(file):
        if group and not _continues(group, line):
            yield joined(group)
            group = []
        group.append(line)
    if group:
        yield joined(group)


def _continues(group: list[Raw], line: Raw) -> bool:
    _, context, _ = _parts(group[0])
    label, next_context, _ = _parts(line)
    has_right = any(_parts(member)[0] == "1" for member in group)
    return context == next_context and not (label == "1" and has_right)


def _parts(line: Raw) -> tuple[str, str, str]:
    label, _, rest = line.text.partition("\t")
    context, _, candidate = rest.rpartition("\t")
    return label.strip(), context, candidate


def _pool(raw: Raw) -> Pool:
    lines: tuple[Raw, ...] = raw.value
    right, wrong = list[str](), list[str]()
    for line in lines:
        label, context, candidate = _parts(line)
        if label not in ("0", "1"):
            raise line.error(f'found label "{label[:20]}", expected 0 or 1', field="label")
        if not context or not candidate.strip():
            raise line.error("found no context or no candidate", field="candidate")
        (right if label == "1" else wrong).append(candidate)
    if len(right) != 1:
        raise raw.error(
            f"found {len(right)} right candidates in the {len(lines)} lines of one context, expected 1", field="label"
        )
    split = required_split(raw.path)
    context = alternating(spaced(text) for text in _parts(lines[0])[1].split("\t") if text.strip())
    return pool_from(raw, f"mantis-{split}-{raw.line}", split, context, right[0], wrong, "mantis")


mantis_tsv = Reader(_open, _detects)
