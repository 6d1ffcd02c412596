"""The contract of corpus readers: a `Reader` opens a path as a `Source` of dialogues or ready pools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from icalib.core.files import content_digest, file_digest
from icalib.data.schema import NONE_RIGHT, AnsweredContext, Dialogue, Pool, Split
from icalib.data.sources.records import SKIP_CURE, OnReject, Raw, accepted, build, unique

T = TypeVar("T")
M = TypeVar("M", Dialogue, Pool, AnsweredContext)


def _nothing(on_reject: OnReject | None) -> Iterator[Any]:
    return iter(())


@dataclass(frozen=True)
class Source:
    """An opened source: whole dialogues, ready pools, or some of each (the Ubuntu corpus)."""

    files: tuple[Path, ...]
    """Everything that is read, in order."""
    dialogues: Callable[[OnReject | None], Iterator[Dialogue]] = _nothing
    """Streams the dialogues; without `on_reject` the first record that is not valid raises DataError."""
    pools: Callable[[OnReject | None], Iterator[Pool]] = _nothing
    answers: Callable[[OnReject | None], Iterator[AnsweredContext]] = _nothing
    """Streams contexts with their right answers, for which wrong ones are mined."""
    last_turn_only: bool = False
    """The last utterance of each dialogue is its only response (contexts of such sources overlap)."""
    keeps_all_candidates: bool = True
    """Ready pools keep all their candidates; false: as many as were asked for, the first right and wrong ones."""
    accepted_only: bool = False
    """The right candidates of its ready pools are accepted answers."""
    understood: str = ""
    """One line for the user: what was guessed."""
    left_out: Counter[str] = field(default_factory=Counter[str])
    """Counts what is left out without being an error, by its description; reading adds to it."""
    reader: str = ""
    """Name of the reader; `open_source` sets it."""

    def digest(self) -> str:
        """Return a digest of the reader's name and of the files' bytes and names (names say the split)."""
        return content_digest([self.reader, *([file.name, file_digest(file)] for file in self.files)])


@dataclass(frozen=True)
class Reader:
    """A corpus format."""

    open: Callable[..., Source]
    """Opens a file or folder; raises DataError if it cannot be of this format. Called with the path and, as keywords,
    those of `options` that the user has set."""
    detects: Callable[[Path], bool] = lambda path: False
    """Whether a file or folder that exists looks like this format, from its name or first record; DataError if it is
    damaged. Without it the format is read only when `--format` names it."""
    options: tuple[str, ...] = ()
    """Which of the options of `open_source` its `open` takes: `speakers`, `columns`."""


def records_in(
    files: Iterable[T],
    read: Callable[[T], Iterator[Raw]],
    parse: Callable[[Raw], M | None],
    unique_field: str = "dialog_id",
) -> Callable[[OnReject | None], Iterator[M]]:
    """Return the `dialogues`, `pools` or `answers` of a source.

    Args:
        files: what is read, in order.
        read: yields the raw records of one file, e.g. `read_lines`.
        parse: makes our record of a raw one, or None where it holds none; raises DataError if it is not valid.
        unique_field: the id that no two records may share: `dialog_id`, or `pool_id` of pools.
    """
    return lambda on_reject: accepted(chain.from_iterable(map(read, files)), unique(parse, unique_field), on_reject)


def spaced(value: Any) -> Any:
    """Return a text with every run of white space as one space; any other value as it is."""
    return " ".join(value.split()) if isinstance(value, str) else value


def alternating(texts: Iterable[str]) -> tuple[dict[str, Any], ...]:
    """Return the utterances of a two-party context without speakers: the last one is the user's."""
    turns = list(texts)
    return tuple(
        {"speaker": "agent" if (len(turns) - index) % 2 == 0 else "user", "text": text}
        for index, text in enumerate(turns)
    )


def pool_from(
    raw: Raw,
    pool_id: str,
    split: Split,
    context: Iterable[Any],
    right: Sequence[str],
    wrong: Iterable[str],
    domain: str,
    dialog_id: str = "",
) -> Pool:
    """Return a ready pool with the right candidates first; without `dialog_id` it is a dialogue of its own."""
    first = [spaced(text) for text in right]
    candidates = [*first, *(text for text in map(spaced, wrong) if text)]
    if len(candidates) < 2:
        raise raw.error("found one candidate only", f"A pool needs two or more. {SKIP_CURE}.", "candidates")
    value = {
        "pool_id": pool_id,
        "dialog_id": dialog_id or pool_id,
        "domain": domain,
        "split": split,
        "context": list(context),
        "candidates": candidates,
        "label": 0 if first else NONE_RIGHT,
        "also_right": range(1, len(first)),
    }
    return build(Pool, value, raw)
