"""Base of generators, which generate answers and contexts for labelled pools as training data of rankers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from icalib.core.component import Component, ComponentConfig
from icalib.data.generated import TextKind
from icalib.data.schema import Pool

Task = Literal["answer", "question"]
"""What a language model is fine-tuned to generate: the answer to a context, or the question before an answer."""
Context = tuple[str, ...]
"""The utterances of a generated context."""


class AbstractGenerator(Component):
    """Generates texts for labelled pools, using only the training split.

    The texts for some pools are a function of (settings, labelled pools, these pools, seed).
    """

    class Config(ComponentConfig):
        """Base of generators' settings."""

        seed: int = 0
        """Seed of the generator, separate from the run's: runs of all seeds use the same generated texts."""
        pools_per_shard: int = Field(default=64, ge=1)
        """Number of pools per task and file; sampled texts depend on it."""

        @model_validator(mode="wrap")
        @classmethod
        def _from_model_name(cls, value: Any, handler: Any) -> Any:
            """Accept a hub name such as `facebook/bart-base`, or a path, as short for a language model."""
            fields = {"target": value} if isinstance(value, str) else value
            if isinstance(fields, dict) and "/" in str(fields.get("target", "")):
                fields = {**fields, "target": "language-model", "model": fields["target"]}
            return handler(fields)

        def title(self, wanted: TextKind) -> str:
            """Return a description of the generator for reports."""
            raise NotImplementedError

        def fine_tuned_tasks(self, wanted: TextKind) -> tuple[Task, ...]:
            """Return the tasks that models must be fine-tuned for; empty if none is needed."""
            return ()

        def check(self) -> None:
            """Raise a SettingError for settings that can't work, before anything is computed."""

    def grey_answers(self, pools: Sequence[Pool], number: int, seed: int) -> list[list[str]]:
        """Generate at most `number` answers per pool that fit its context, but less well than the right answer."""
        raise NotImplementedError

    def right_answers(self, pools: Sequence[Pool], seed: int) -> list[list[str]]:
        """Generate at most one other right answer per pool."""
        raise NotImplementedError

    def contexts(self, pools: Sequence[Pool], seed: int) -> list[list[Context]]:
        """Generate, for each candidate of each pool, a context in which it would be right; empty for right ones, or if
        none is found.
        """
        raise NotImplementedError
