"""What a pool set depends on besides its source."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from icalib.core.component import Settings
from icalib.data.intent_map import IntentMap, parsed_intent_map
from icalib.data.sources.speakers import Role


class PrepareSettings(Settings):
    """Settings of `prepare`.

    Example:
        >>> PrepareSettings(num_candidates=4, labelled=0.25).negative_sampler
        'neighbourhood'
    """

    protocol: Literal["icast", "gpf", "pg"] | None = None
    """Make pools as a paper did (`icalib.data.protocols`): what the paper states can't be set otherwise."""
    num_candidates: int = Field(default=10, ge=2)
    """C: candidates of a pool, the right response and C − 1 negatives."""
    negative_sampler: str = "neighbourhood"
    """`neighbourhood`: wrong candidates like the right one, among which it can't be told without its context.
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
    map_intents: Annotated[IntentMap, BeforeValidator(parsed_intent_map)] = Field(default={})
    """Names of intents by the source's own labels: a JSON file or its content, see `parsed_intent_map`. Without it,
    intents are the labels."""
    unanswerable: float = Field(default=0.0, ge=0, lt=1)
    """Fraction of each split's pools that lose their right candidate for another wrong one, drawn by the seed."""
    skip_bad: bool = False
    """Leave out records that are not valid and write them to `<out>.rejected.jsonl`."""

    def inputs(self) -> dict[str, Any]:
        """Return the settings that the pools depend on; the reader counts through the source's digest."""
        return self.model_dump(exclude={"format"})

    def reading(self) -> dict[str, Any]:
        """Return the options of `open_source`."""
        return {"speakers": self.speakers, "columns": self.columns}
