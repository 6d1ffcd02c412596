"""What the kinds of post-training have in common: questions asked of windows of dialogues.

The answers are free: they come from the dialogues themselves, labelled or not, and no answer of an unlabelled pool is
ever asked for (see `Windows`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np
from pydantic import Field

from icalib.core.component import Component, ComponentConfig
from icalib.data.batching import shuffled_batches
from icalib.data.encoding import Encoded
from icalib.training.settings import TrainingSettings


class Asked(NamedTuple):
    """The inputs of one batch, the head that is asked about them, and the right classes [B]."""

    task: str
    head: str
    encoded: list[Encoded]
    classes: list[int]


class AbstractPostTraining(Component):
    """What is learnt in post-training: batches of examples from windows of dialogues, and what is asked about them.

    Args:
        config: the settings.
        store: the tokens of a split's pools.
        rows: pools whose contexts are read.
        layout: how inputs are written.

    Raises:
        SettingError: the contexts hold no windows.
    """

    class Config(ComponentConfig):
        """Settings that all kinds of post-training have."""

        training: TrainingSettings = TrainingSettings()
        """Optimiser and schedule; there is no validation, the last weights are kept."""
        max_windows: int | None = Field(default=None, ge=1)
        """Windows of dialogues an epoch, drawn anew each epoch; None takes all."""
        masked_word_weight: float = Field(default=0.0, ge=0)
        """Weight of the masked-word loss beside the other; 0 leaves words unmasked."""
        masked_share: float = Field(default=0.15, gt=0, lt=1)
        """Share of the tokens that are hidden, 80 % as [MASK], 10 % as another word, 10 % as they are."""
        held_out_windows: int = Field(default=100, ge=1)
        """Windows of validation dialogues whose accuracy and loss the learning curves show after each epoch; nothing is
        chosen by them."""
        seed: int = 0
        """Its own seed: one post-trained model serves the runs of all seeds."""

        questions: ClassVar[Mapping[str, int]] = {}
        """Classes of each linear head on [CLS] that is asked, by name; these heads are dropped afterwards."""

        @property
        def learns_answers(self) -> bool:
            """Whether it is the answer head that is asked, and that starts from what it learnt."""
            return not self.questions

    def batches(self, epoch: int) -> Sequence[Sequence[Any]]:
        """All batches of an epoch: a function of the settings, the data and the epoch alone."""
        raise NotImplementedError

    def asked(self, examples: Sequence[Any]) -> Asked:
        """What is asked about the examples of one batch."""
        raise NotImplementedError


class _Sized(Protocol):
    """An example that knows about how many tokens it has."""

    @property
    def length(self) -> int: ...


E = TypeVar("E", bound=_Sized)


def batched(examples: Sequence[E], training: TrainingSettings, rng: np.random.Generator) -> list[list[E]]:
    """Batches of examples of like length, in random order."""
    lengths = [example.length for example in examples]
    batches = shuffled_batches(lengths, training.batch_size, training.max_tokens_per_batch, rng)
    return [[examples[int(place)] for place in batch] for batch in batches]
