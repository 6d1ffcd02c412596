"""What a generator is: it makes up answers and contexts for labelled pools, for others to learn from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from pydantic import Field, model_validator

from icalib.core.component import Component, ComponentConfig
from icalib.data.generated import Wanted
from icalib.data.schema import Pool

Task = Literal["answer", "question"]
"""What a model is fine-tuned to write: the answer to a context, or the question that an answer replies to."""


class Answer(NamedTuple):
    """An answer that was made up, and how."""

    text: str
    source: str


class Context(NamedTuple):
    """A context that was made up, and how."""

    utterances: tuple[str, ...]
    source: str


class AbstractGenerator(Component):
    """Makes up texts for labelled pools; knows the training split only.

    What it makes up for some pools depends on (settings, labelled pools, these pools, seed) alone.
    """

    class Config(ComponentConfig):
        """Base of generators' settings."""

        seed: int = 0
        """Its own seed: the texts that are made up once serve the runs of all seeds."""
        pools_per_shard: int = Field(default=64, ge=1)
        """Pools that one task serves and one file holds; sampled texts depend on it."""

        @model_validator(mode="wrap")
        @classmethod
        def _from_model_name(cls, value: Any, handler: Any) -> Any:
            """`facebook/bart-base` or a path is short for the language model that lies there."""
            fields = {"target": value} if isinstance(value, str) else value
            if isinstance(fields, dict) and "/" in str(fields.get("target", "")):
                fields = {**fields, "target": "language-model", "model": fields["target"]}
            return handler(fields)

        def title(self, wanted: Wanted) -> str:
            """Who makes up what is wanted, for people."""
            raise NotImplementedError

        def learnt_tasks(self, wanted: Wanted) -> tuple[Task, ...]:
            """What a model must be fine-tuned for first; nothing where none is needed."""
            return ()

        def check(self) -> None:
            """Refuse what can't work before anything is computed."""

    def grey_answers(self, pools: Sequence[Pool], number: int, seed: int) -> list[list[Answer]]:
        """At most `number` answers for each pool that suit its context, but less than the right one."""
        raise NotImplementedError

    def right_answers(self, pools: Sequence[Pool], seed: int) -> list[list[Answer]]:
        """At most one answer for each pool that is as right as the right one."""
        raise NotImplementedError

    def contexts(self, pools: Sequence[Pool], seed: int) -> list[list[Context | None]]:
        """For each pool's candidates contexts that they would be right in; None for the right one, or where none is
        found."""
        raise NotImplementedError
