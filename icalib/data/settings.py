"""What a pool set depends on besides its source."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field

from icalib.core.component import Settings
from icalib.core.errors import DataError
from icalib.data.schema import OptionalText, Text
from icalib.data.sources.messages import Role

_OTHERS = "*"
"""Stands for every label that an intent map doesn't name."""


def _intent_map(given: Any) -> Any:
    """Return an intent map by role from a JSON file or from its content; `IntentMap` says whether it is valid.

    The content is {label: intent} for both roles, or {"user": {label: intent}, "agent": {label: intent}}. Instead of an
    intent there may be a list of intents, or null for none. `*` stands for all other labels. Names that start with an
    underscore, such as `_note`, are left out.
    """
    if isinstance(given, str | Path):
        try:
            given = json.loads(Path(given).read_text(encoding="utf-8"))
        except OSError as error:
            raise ValueError(f"{given} can't be read: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{given} can't be read as JSON ({error})") from error
    if not isinstance(given, Mapping):
        return given
    named = {name: value for name, value in cast("Mapping[Any, Any]", given).items() if not str(name).startswith("_")}
    if not any(isinstance(value, Mapping) for value in named.values()):
        return {"user": named, "agent": named} if named else {}
    return {"user": {}, "agent": {}, **named}


def _listed(given: Any) -> Any:
    return () if given is None else (given,) if isinstance(given, str) else given


IntentMap = dict[Literal["user", "agent"], dict[OptionalText, Annotated[tuple[Text, ...], BeforeValidator(_listed)]]]
"""Names of intents by role and label."""


def mapped_intents(intent_map: IntentMap, speaker: Literal["user", "agent"], labels: Sequence[str]) -> tuple[str, ...]:
    """Return an utterance's intents by the map, each once; without a map its own labels."""
    if not intent_map:
        return tuple(labels)
    names = intent_map[speaker]
    if missing := [label for label in labels if label not in names and _OTHERS not in names]:
        raise DataError(
            f"the intent {missing[0]!r} of an utterance by the {speaker} isn't in the intent map",
            'Add it to the map, or "*" for all others ("*": null gives them none)',
            field="intents",
        )
    return tuple(dict.fromkeys(intent for label in labels for intent in names.get(label, names.get(_OTHERS, ()))))


class PrepareSettings(Settings):
    """Settings of `prepare`."""

    protocol: Literal["icast", "gpf", "pg"] | None = None
    """Make pools as a paper did (`icalib.data.protocols`): what the paper states can't be set otherwise."""
    num_candidates: int = Field(default=10, ge=2)
    """C: candidates of a pool, the right response and C − 1 negatives."""
    negative_sampler: str = "neighbourhood"
    """`neighbourhood`: wrong candidates like the right one, among which only its context identifies it.
    `bm25-response`: those that BM25 ranks highest for the right one, as in the papers; they give it away. `random`, or
    the name or import path of another sampler."""
    context_turns: int = Field(default=4, ge=1)
    """Maximum number of utterances in a context."""
    min_context: int = Field(default=2, ge=1)
    """Minimum number of utterances before a response. Where it is not set and no dialogue is long enough, it is 1."""
    answers: Literal["all", "accepted"] = "all"
    """`accepted`: only utterances that the source marks as accepted answers are right responses."""
    intents_in: Literal["any", "train"] = "any"
    """`train`: dialogues with intents are training dialogues, whatever their split in the source."""
    labelled: float | None = Field(default=None, gt=0, le=1)
    """Default labelled fraction of the set; None: the fraction of training pools with intents, where only some have
    them."""
    seed: int = 7
    """Of splits, negatives, the order of candidates and the order in which pools become labelled."""
    limit: int | None = Field(default=None, ge=1)
    """Maximum number of pools of a split, the first ones."""
    format: str | None = None
    """The source's format: a reader's name or import path; None detects it."""
    speakers: dict[str, Role] = Field(default={})
    """What speakers are (user, agent or skip), by the source's own names; `*` stands for all others."""
    columns: dict[str, str] = Field(default={})
    """The source's own names of columns, by what they are (id, sender, text, query, ...); the others are guessed."""
    map_intents: Annotated[IntentMap, BeforeValidator(_intent_map)] = Field(default={})
    """Names of intents by the source's own labels: a JSON file or its content (docs/data.md). Without it, intents are
    the labels."""
    unanswerable: float = Field(default=0.0, ge=0, lt=1)
    """Fraction of each split's pools that lose their right candidate for another wrong one, drawn by the seed."""
    skip_bad: bool = False
    """Leave out records that are not valid and write them to `<out>.rejected.jsonl`."""

    @property
    def asks_for_candidates(self) -> bool:
        """Whether a number of candidates was asked for, to which ready pools are cut as well."""
        return self.protocol is not None or "num_candidates" in self.model_fields_set

    def inputs(self) -> dict[str, Any]:
        """Return the settings that the pools depend on; the reader counts through the source's digest."""
        return self.model_dump(mode="json", exclude={"format"})

    def reading(self) -> dict[str, Any]:
        """Return the options of `open_source`."""
        return {"speakers": self.speakers, "columns": self.columns}
