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
M = TypeVar("M", Dialogue, Pool)


def _nothing(on_reject: OnReject | None) -> Iterator[Any]:
    return iter(())


@dataclass(frozen=True)
class Source:
    """An opened source: whole dialogues, ready pools, or some of each (the Ubuntu corpus).

    Args:
        files: everything that is read, in order.
        dialogues: streams the dialogues; without `on_reject` the first record that is not valid raises DataError.
        pools: streams the ready pools, in the same way.
        answers: streams contexts with their right answers, for which wrong ones are mined, in the same way.
        last_turn_only: the last utterance of each dialogue is its only response (contexts of such sources overlap).
        keeps_all_candidates: ready pools keep all their candidates; false: at most as many as were asked for, the
            first right and the first wrong ones.
        accepted_only: the right candidates of its ready pools are accepted answers.
        understood: one line for the user: what was guessed; empty where nothing was.
        left_out: counts what is left out without being an error, by its description; reading adds to it.
        reader: name of the reader; `open_source` sets it.
    """

    files: tuple[Path, ...]
    dialogues: Callable[[OnReject | None], Iterator[Dialogue]] = _nothing
    pools: Callable[[OnReject | None], Iterator[Pool]] = _nothing
    answers: Callable[[OnReject | None], Iterator[AnsweredContext]] = _nothing
    last_turn_only: bool = False
    keeps_all_candidates: bool = True
    accepted_only: bool = False
    understood: str = ""
    left_out: Counter[str] = field(default_factory=Counter[str])
    reader: str = ""

    def digest(self) -> str:
        """Return a digest of the reader's name and of the files' bytes and names (names say the split)."""
        return content_digest([self.reader, *([file.name, file_digest(file)] for file in self.files)])


def _detects_nothing(path: Path) -> bool:
    return False


@dataclass(frozen=True)
class Reader:
    """A corpus format.

    Args:
        open: opens a file or folder of this format; raises DataError if it cannot be one. Called with the path and,
            as keywords, those of `options` that the user has set.
        detects: whether a file or folder that exists looks like this format, from its name or first record. Without
            it the format is read only when `--format` names it.
        options: which of the options of `open_source` its `open` takes: `speakers`, `columns`.
    """

    open: Callable[..., Source]
    detects: Callable[[Path], bool] = _detects_nothing
    options: tuple[str, ...] = ()


def dialogues_in(
    files: Iterable[T], read: Callable[[T], Iterator[Raw]], parse: Callable[[Raw], Dialogue | None]
) -> Callable[[OnReject | None], Iterator[Dialogue]]:
    """Return the `Source.dialogues` of some files.

    Args:
        files: what is read, in order.
        read: yields the raw records of one file, e.g. `read_lines`.
        parse: makes a dialogue of a raw record, or None where it holds none; raises DataError if it is not valid.
    """
    return _records_in(files, read, parse, "dialog_id")


def pools_in(
    files: Iterable[T], read: Callable[[T], Iterator[Raw]], parse: Callable[[Raw], Pool | None]
) -> Callable[[OnReject | None], Iterator[Pool]]:
    """Return the `Source.pools` of some files; arguments as for `dialogues_in`."""
    return _records_in(files, read, parse, "pool_id")


def _records_in(
    files: Iterable[T], read: Callable[[T], Iterator[Raw]], parse: Callable[[Raw], M | None], id_field: str
) -> Callable[[OnReject | None], Iterator[M]]:
    return lambda on_reject: accepted(chain.from_iterable(map(read, files)), unique(parse, id_field), on_reject)


def spaced(value: Any) -> Any:
    """Return a text with every run of white space as one space, and any other value as it is."""
    return " ".join(value.split()) if isinstance(value, str) else value


def alternating(texts: Iterable[str]) -> tuple[dict[str, Any], ...]:
    """Return the utterances of a two-party context without speakers: the last one is the user's.

    Example:
        >>> [utterance["speaker"] for utterance in alternating(["hello", "what is wrong?", "it hums"])]
        ['user', 'agent', 'user']
    """
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
    right: str | Sequence[str],
    wrong: Iterable[str],
    domain: str,
    dialog_id: str = "",
) -> Pool:
    """Return a ready pool with the right candidates first; without `dialog_id` it is a dialogue of its own.

    Raises:
        DataError: an empty utterance or answer, or fewer than two candidates.
    """
    first = [spaced(text) for text in ([right] if isinstance(right, str) else right)]
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
