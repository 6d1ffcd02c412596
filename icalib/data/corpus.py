"""The reading pass of `prepare`: from a source to one file of rows a split."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from icalib.core.errors import DataError
from icalib.core.seeding import child_seed
from icalib.data.contexts import ContextResponse, context_responses
from icalib.data.mining import Progress, Spill
from icalib.data.schema import SPLITS, UNKNOWN_LABEL, AnsweredContext, Dialogue, Pool, Split, Utterance
from icalib.data.settings import PrepareSettings, mapped_intents
from icalib.data.sources.records import OnReject, Source
from icalib.data.splits import FRACTIONS, assigned_split

_NUM_TRIED = 1000
"""Dialogues that decide whether two-turn dialogues count."""
_MAX_FRACTION = 1 / 3
"""Maximum fraction of the training dialogues that are held out for a split that the source lacks."""


class Corpus:
    """The rows of a source: one spill a split and a few facts about its pools."""

    def __init__(self, folder: Path, settings: PrepareSettings) -> None:
        self.spills: dict[Split, Spill] = {split: Spill(folder / f"{split}.arrow") for split in SPLITS}
        self.mined: set[Split] = set()
        """Splits whose rows hold the right response alone."""
        self.intents: set[str] = set()
        self.intents_in: set[Split] = set()
        """Splits in which contexts have intents."""
        self.split_origins: set[str] = set()
        """Where splits come from: `source`, `drawn` or both."""
        self.has_intents = array("b")
        """Whether each training pool has intents (0 or 1)."""
        self.label_known = array("b")
        """Whether it is known which candidate of each training pool is right, if any (0 or 1)."""
        self._limit = settings.limit

    @property
    def num_rows(self) -> dict[str, int]:
        """Pools of each split."""
        return {split: spill.num_rows for split, spill in self.spills.items()}

    def is_full(self, split: Split) -> bool:
        """Whether a split has reached the limit."""
        return self._limit is not None and self.spills[split].num_rows >= self._limit

    def add(self, row: dict[str, Any]) -> None:
        """Add a row."""
        split: Split = row["split"]
        names = {name for utterance in row["context"] for name in utterance["intents"]}
        self.intents |= names
        if names:
            self.intents_in.add(split)
        if split == "train":
            self.has_intents.append(bool(names))
            self.label_known.append(row["label"] != UNKNOWN_LABEL)
        self.spills[split].append(row)

    def replace(self, spills: dict[Split, Spill]) -> None:
        """Begin some splits again, training pools among them, with empty files."""
        self.spills.update(spills)
        self.intents_in -= spills.keys()
        self.has_intents, self.label_known = array("b"), array("b")

    def fraction_with_intents(self) -> float | None:
        """Return the fraction of training pools with intents; None where all or none have them."""
        fraction = sum(self.has_intents) / max(1, len(self.has_intents))
        return fraction if 0 < fraction < 1 else None


def shortest_context(source: Source, settings: PrepareSettings) -> int:
    """Return the minimum number of utterances before a response: 1 where no dialogue has more, unless it is set."""
    if "min_context" in settings.model_fields_set:
        return settings.min_context
    sample = islice(source.dialogues(lambda error, raw: None), _NUM_TRIED)
    longest = max((len(dialogue.utterances) for dialogue in sample), default=0)
    return 1 if 0 < longest <= settings.min_context else settings.min_context


def responses_of(dialogue: Dialogue, source: Source, settings: PrepareSettings) -> Iterator[ContextResponse]:
    """Yield the pairs of a dialogue that become pools."""
    return context_responses(
        dialogue,
        context_turns=settings.context_turns,
        min_context=settings.min_context,
        last_turn_only=source.last_turn_only,
        accepted_only=settings.answers == "accepted",
    )


def read_corpus(
    source: Source, folder: Path, settings: PrepareSettings, rejected: RejectedRecords | None, progress: Progress
) -> Corpus:
    """Read a source into files in `folder`, one for each split; the first invalid record raises without `rejected`."""
    corpus = Corpus(folder, settings)
    source.left_out.clear()
    for done, rows in enumerate(_records(source, corpus, settings, rejected), 1):
        for row in rows:
            if not corpus.is_full(row["split"]):
                for utterance in row["context"]:
                    labels = utterance["intents"]
                    utterance["intents"] = mapped_intents(settings.map_intents, utterance["speaker"], labels)
                corpus.add(row)
        if done % 1000 == 0:
            progress("read", done, None)
        if all(map(corpus.is_full, SPLITS)):
            break
    for spill in corpus.spills.values():
        spill.close()
    num_pools = sum(corpus.num_rows.values())
    progress("read", num_pools, num_pools)
    if not num_pools:
        if rejected and rejected.count:
            source.left_out["records that are not valid"] = rejected.count
        left_out = ", ".join(f"{number} {what}" for what, number in source.left_out.items())
        raise DataError(
            "no pool came out of it" + (f" (left out: {left_out})" if left_out else ""),
            f"In dialogues, a response needs {settings.min_context} utterances before it (--min-context), one of them "
            "by the user: say who is user and who is agent with --speakers. A query needs a right answer and a wrong "
            "one that differs from it. Look at what is read with --preview, or choose another source.",
            path=source.files[0],
        )
    return corpus


def _records(
    source: Source, corpus: Corpus, settings: PrepareSettings, on_reject: OnReject | None
) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of each record, in splits of `corpus.mined` with the right response as their only candidate."""
    yield from _dialogue_rows(source, corpus, settings, on_reject)
    for answered in source.answers(on_reject):
        if settings.answers == "accepted":
            raise _unmarked(source)
        split = _split(answered, corpus, settings)
        corpus.mined.add(split)
        context = answered.context[-settings.context_turns :]
        yield [_row(answered, split, number, context, text) for number, text in enumerate(answered.answers)]
    for pool in source.pools(on_reject):
        if settings.answers == "accepted" and not source.accepted_only:
            raise _unmarked(source)
        row = {**pool.model_dump(), "split": _split(pool, corpus, settings)}
        keeps_all = source.keeps_all_candidates and not settings.asks_for_candidates
        if not keeps_all and len(pool.candidates) > settings.num_candidates:
            row |= _cut(pool, settings.num_candidates, source.left_out)
        yield [{**row, "context": row["context"][-settings.context_turns :]}]


def _dialogue_rows(
    source: Source, corpus: Corpus, settings: PrepareSettings, on_reject: OnReject | None
) -> Iterator[list[dict[str, Any]]]:
    num_dialogues = num_accepted = 0
    for dialogue in source.dialogues(on_reject):
        split = _split(dialogue, corpus, settings)
        if settings.intents_in == "train" and any(utterance.intents for utterance in dialogue.utterances):
            split = "train"
        corpus.mined.add(split)
        num_dialogues += 1
        num_accepted += any(turn.is_answer for turn in dialogue.utterances if turn.speaker == "agent")
        yield [
            _row(dialogue, split, pair.turn, pair.context, pair.response.text)
            for pair in responses_of(dialogue, source, settings)
        ]
    if settings.answers == "accepted" and num_dialogues:
        if not num_accepted:
            raise _unmarked(source)
        if num_accepted < num_dialogues:
            source.left_out["dialogues without an accepted answer"] += num_dialogues - num_accepted


def _split(record: Dialogue | AnsweredContext | Pool, corpus: Corpus, settings: PrepareSettings) -> Split:
    """Return a record's own split, or the one that is drawn for its dialogue, and note which it was."""
    corpus.split_origins.add("source" if record.split else "drawn")
    return record.split or assigned_split(record.dialog_id, settings.seed)


def _row(
    record: Dialogue | AnsweredContext, split: Split, number: int, context: Iterable[Utterance], response: str
) -> dict[str, Any]:
    """Return the row of a right response, whose negatives will be mined."""
    query_id = record.query_id if isinstance(record, AnsweredContext) else ""
    return {
        "pool_id": f"{query_id or record.dialog_id}#{number}",
        "dialog_id": record.dialog_id,
        "domain": record.domain,
        "split": split,
        "context": [utterance.model_dump() for utterance in context],
        "candidates": [response],
        "label": 0,
        "label_order": -1,
        "also_right": [],
    }


def _unmarked(source: Source) -> DataError:
    return DataError(
        f"nothing in this source of the format {source.reader} says which answers were accepted",
        'Mark accepted answers: "is_answer": true on utterances of agents, or a column is_answer (docs/data.md). Or '
        "prepare without --protocol icast.",
        path=source.files[0],
    )


def _cut(pool: Pool, num_candidates: int, left_out: Counter[str]) -> dict[str, Any]:
    """Return the first candidates of a pool and their labels; `left_out` counts the others.

    Right ones fill at most half of the pool, or what wrong ones leave of it, so that there is something to rank.
    """
    right = list(pool.right)
    wrong = [index for index in range(len(pool.candidates)) if index not in right]
    num_right = min(len(right), max(num_candidates // 2, num_candidates - len(wrong)))
    num_wrong = num_candidates - num_right
    for kind, number in (("right", len(right) - num_right), ("wrong", len(wrong) - num_wrong)):
        if number:
            left_out[f"{kind} candidates of pools with more than {num_candidates}"] += number
    kept = [*right[:num_right], *wrong[:num_wrong]]
    return {
        "candidates": [pool.candidates[index] for index in kept],
        "label": 0 if right else pool.label,
        "also_right": list(range(1, num_right)),
    }


class RejectedRecords:
    """The records that were left out, one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0

    def __call__(self, error: DataError, raw: str) -> None:
        """Add a record."""
        self.count += 1
        line = {"path": error.path, "line": error.line, "field": error.field, "reason": error.found, "raw": raw}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def hold_out(corpus: Corpus, folder: Path, settings: PrepareSettings) -> list[str]:
    """Move training dialogues, drawn by ids and seed, to splits without pools; return a message for each such split.

    Dialogues with a pool of unknown label stay. A source without training pools is left as it is: it may be for
    `score`.
    """
    moved = _moved_dialogues(corpus, settings)
    taken: list[Split] = [split for split in SPLITS if split in moved.values()]
    if not taken:
        return []
    earlier = corpus.spills["train"]
    splits: list[Split] = ["train", *taken]
    begun: dict[Split, Spill] = {split: Spill(folder / f"held-out-{split}.arrow") for split in splits}
    corpus.replace(begun)
    corpus.split_origins.add("drawn")
    for row in earlier.rows():
        corpus.add({**row, "split": moved.get(row["dialog_id"], "train")})
    for spill in begun.values():
        spill.close()
    if "train" in corpus.mined:
        corpus.mined.update(taken)
    num_dialogues = Counter(moved.values())
    without = " without intents" if settings.intents_in == "train" else ""
    return [
        f"the source has no {split} pools{without}: {corpus.num_rows[split]} pools of {num_dialogues[split]} training "
        f"dialogues are used for it (drawn with seed {settings.seed})"
        for split in taken
    ]


def _moved_dialogues(corpus: Corpus, settings: PrepareSettings) -> dict[str, Split]:
    """Return the new split of each dialogue that leaves the training pools."""
    num_pools, unknown, with_intents = Counter[str](), set[str](), set[str]()
    rows = corpus.spills["train"].rows(columns=["dialog_id", "label"])
    for row, has_intents in zip(rows, corpus.has_intents, strict=True):
        num_pools[row["dialog_id"]] += 1
        if has_intents:
            with_intents.add(row["dialog_id"])
        if row["label"] == UNKNOWN_LABEL:
            unknown.add(row["dialog_id"])
    draw = {dialog_id: child_seed(settings.seed, "held out", dialog_id) for dialog_id in num_pools.keys() - unknown}
    last = with_intents if settings.intents_in == "train" else set[str]()
    order = iter(sorted(draw, key=lambda dialog_id: (dialog_id in last, draw[dialog_id], dialog_id)))
    # mined candidates are other responses of the split
    min_pools = 2 * settings.num_candidates if "train" in corpus.mined else 1
    moved: dict[str, Split] = {}
    for split, fraction in zip(SPLITS[1:], FRACTIONS[1:], strict=True):
        if corpus.num_rows[split]:
            continue
        wanted, limit = max(1, round(fraction * len(num_pools))), int(_MAX_FRACTION * len(num_pools))
        taken = taken_pools = 0
        while taken < limit and (taken < wanted or taken_pools < min_pools) and (dialog_id := next(order, "")):
            moved[dialog_id] = split
            taken, taken_pools = taken + 1, taken_pools + num_pools[dialog_id]
    return moved
