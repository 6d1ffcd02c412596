"""Substitutes for generators, where there is none: texts that the labelled dialogues hold already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Literal, final

import numpy as np
import torch
from pydantic import Field

from icalib.core.seeding import child_seed
from icalib.data.generated import Wanted
from icalib.data.negatives import Rows
from icalib.data.pools import as_pools, iter_pools, read_rows
from icalib.data.schema import Pool
from icalib.data.selection import Selection
from icalib.data.splits import text_key
from icalib.generation.bm25 import BM25Index
from icalib.generation.generator import AbstractGenerator, Answer, Context, Task
from icalib.generation.texts import is_near_duplicate, question_place, sentences

_ROWS_AT_A_TIME = 1024


def training_rows(data: Path, selection: Selection, part: Literal["labelled", "all"]) -> Rows:
    """Rows of the labelled pools of the training split, or of all its pools that a run uses."""
    columns = [batch["label_order"].to_numpy() for batch in iter_pools(data, "train", ["label_order"])]
    return selection.rows("train", part, np.concatenate(columns))


def training_pools(data: Path, rows: Rows) -> Iterator[Pool]:
    """Some pools of the training split, in the order of `rows`."""
    for start in range(0, len(rows), _ROWS_AT_A_TIME):
        yield from as_pools(read_rows(data, "train", rows[start : start + _ROWS_AT_A_TIME]))


def gold(pool: Pool) -> str:
    """A labelled pool's right answer."""
    return pool.candidates[pool.label]


@final
class Retrieval(AbstractGenerator):
    """Retrieved and rearranged texts: no model, no training.

    The papers fine-tune sequence-to-sequence models (GRAY, Lin et al. 2020, Section 3.1, has a retriever beside it);
    these substitutes are ours.

    A wrong candidate is the right answer to some other context, which is a real positive where it is known: by
    default if it is the right answer of a labelled pool. For the others the context of the nearest known answer
    (BM25) has to do.
    """

    class Config(AbstractGenerator.Config):
        """Settings of retrieval."""

        grey: Literal["question", "answer", "corrupted"] = "question"
        """How grey answers are found. `question`: the best of BM25 for the user's last utterance. `answer`: for the
        right answer, as BM25 negatives are. `corrupted`: the right answer with a sentence dropped, or half of it
        replaced by a sentence of an answer that BM25 finds for it."""
        max_repository: int = Field(default=50_000, ge=1)
        """Answers to retrieve from, at most: the candidates of the labelled pools, then those of the others, of which
        no label is used."""
        contexts_from: Literal["labelled", "all"] = "labelled"
        """Whose true contexts may be known. `labelled`: labelled pools' only. `all`: every training pool's, which tells
        the method the right answers of unlabelled pools wherever they are wrong candidates of labelled ones."""

        def title(self, wanted: Wanted) -> str:
            """Which substitute it is."""
            if wanted == "pseudo_positives":
                return "true contexts of wrong answers (else bm25), reordered right answers"
            return {
                "question": "retrieved (bm25 of the last user utterance)",
                "answer": "retrieved (bm25 of the right answer)",
                "corrupted": "corrupted right answers",
            }[self.grey]

    def __init__(
        self, config: Config, *, data: Path, selection: Selection, models: Mapping[Task, Path], device: torch.device
    ) -> None:
        self.config, self._data, self._selection = config, data, selection

    def grey_answers(self, pools: Sequence[Pool], number: int, seed: int) -> list[list[Answer]]:
        """Retrieved or corrupted answers; none that is among the pool's candidates or nearly the right one."""
        if self.config.grey == "corrupted":
            return [self._corrupted(pool, number, seed) for pool in pools]
        source = f"bm25 of the {self.config.grey}"
        return [[Answer(text, source) for text in islice(self._retrieved(pool), number)] for pool in pools]

    def right_answers(self, pools: Sequence[Pool], seed: int) -> list[list[Answer]]:
        """The right answer with its sentences in another order; as it is where it has only one."""
        return [[_reordered(gold(pool), _rng(seed, pool))] for pool in pools]

    def contexts(self, pools: Sequence[Pool], seed: int) -> list[list[Context | None]]:
        """The context that a wrong answer really came from, or that of the nearest known answer."""
        return [
            [
                None if place == pool.label else self._context_of(candidate, pool)
                for place, candidate in enumerate(pool.candidates)
            ]
            for pool in pools
        ]

    def _context_of(self, answer: str, pool: Pool) -> Context | None:
        known = ((place, "true context") for place in self._known_places.get(text_key(answer), ()))
        nearest = ((int(place), "bm25 context") for place in self._known_index.ranked(answer)[0])
        for place, source in chain(known, nearest):
            found = self._known[place]
            if found.dialog_id != pool.dialog_id:
                return Context(tuple(utterance.text for utterance in found.context), source)
        return None

    def _retrieved(self, pool: Pool) -> Iterator[str]:
        query = gold(pool) if self.config.grey != "question" else pool.context[question_place(pool.context)].text
        taken = {text_key(candidate) for candidate in pool.candidates}
        for place in self._repository_index.ranked(query)[0]:
            text = self._repository[int(place)]
            if text_key(text) not in taken and not is_near_duplicate(text, gold(pool)):
                yield text

    def _corrupted(self, pool: Pool, number: int, seed: int) -> list[Answer]:
        """Alternately with a sentence less and with half of it replaced."""
        rng, donors = _rng(seed, pool), self._retrieved(pool)
        made: dict[int, Answer] = {}
        for turn in range(4 * number):  # a short answer can be corrupted in few ways
            answer = _dropped(gold(pool), rng) if turn % 2 == 0 else _replaced(gold(pool), next(donors, ""))
            if answer.text and not is_near_duplicate(answer.text, gold(pool)):
                made.setdefault(text_key(answer.text), answer)
        return list(made.values())[:number]

    @cached_property
    def _repository(self) -> list[str]:
        """Distinct answers to retrieve from."""
        found: dict[int, str] = {}
        labelled = training_rows(self._data, self._selection, "labelled")
        others = np.setdiff1d(training_rows(self._data, self._selection, "all"), labelled)
        for pool in chain(training_pools(self._data, labelled), training_pools(self._data, others)):
            if len(found) >= self.config.max_repository:
                break
            for candidate in pool.candidates:
                found.setdefault(text_key(candidate), candidate)
        return list(found.values())[: self.config.max_repository]

    @cached_property
    def _repository_index(self) -> BM25Index:
        return BM25Index(self._repository)

    @cached_property
    def _known(self) -> list[Pool]:
        """The pools whose true contexts may be known."""
        rows = training_rows(self._data, self._selection, self.config.contexts_from)
        return [pool for pool in training_pools(self._data, rows) if pool.label >= 0]

    @cached_property
    def _known_index(self) -> BM25Index:
        return BM25Index([gold(pool) for pool in self._known])

    @cached_property
    def _known_places(self) -> dict[int, list[int]]:
        places: dict[int, list[int]] = {}
        for place, pool in enumerate(self._known):
            places.setdefault(text_key(gold(pool)), []).append(place)
        return places


def _rng(seed: int, pool: Pool) -> np.random.Generator:
    """A pool's own draws, whichever shard it is in."""
    return np.random.default_rng(child_seed(seed, pool.pool_id))


def _reordered(text: str, rng: np.random.Generator) -> Answer:
    parts = sentences(text)
    if len(set(parts)) < 2:
        return Answer(text, "right answer")
    shuffled = parts
    while shuffled == parts:
        shuffled = [parts[int(place)] for place in rng.permutation(len(parts))]
    return Answer(" ".join(shuffled), "right answer, reordered")


def _parts(text: str) -> list[str]:
    """Sentences, or the words of a single one."""
    parts = sentences(text)
    return parts if len(parts) > 1 else text.split()


def _dropped(text: str, rng: np.random.Generator) -> Answer:
    """Without one of its sentences; a single one loses half of its words."""
    parts = sentences(text)
    if len(parts) == 1:
        words = text.split()
        start = int(rng.integers(len(words) - len(words) // 2 + 1))
        return Answer(" ".join(words[:start] + words[start + len(words) // 2 :]), "half of the words dropped")
    del parts[int(rng.integers(len(parts)))]
    return Answer(" ".join(parts), "sentence dropped")


def _replaced(text: str, donor: str) -> Answer:
    """The first half of it, then the donor's first sentence."""
    parts = _parts(text)
    return Answer(" ".join([*parts[: len(parts) // 2], *sentences(donor)[:1]]), "half replaced")
