"""Learning answers from labelled pools and from texts that were made up for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self, final

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from icalib.core.component import Component, ComponentConfig
from icalib.data.encoding import Encoded, Layout, TokenPool, TokenStore
from icalib.data.generated import GeneratedPool, GeneratedStore, Wanted
from icalib.losses.binary import AbstractLoss
from icalib.models.ranker import make_batch
from icalib.training.examples import Example, PairLabels, encode
from icalib.training.pairs import AnswerCurriculum
from icalib.training.settings import TrainingSettings


class Companions(NamedTuple):
    """Logits [B, K] of the K inputs that accompany each pair, and which of them there are."""

    logits_BK: Tensor
    exists_BK: Tensor


class AbstractContrast(Component):
    """Adds a term to the loss of a pair: its logit against those of companions that were made up for it."""

    class Config(ComponentConfig):
        """Base of contrasts' settings."""

        weight: float = Field(default=1.0, ge=0)
        """Weight of the term beside the loss of the pair; 0 leaves it out."""

        @property
        def wanted(self) -> Wanted:
            """Which texts must be made up."""
            raise NotImplementedError

        @property
        def num_answers(self) -> int:
            """How many answers must be made up for a context."""
            return 1

    def __init__(self, config: Config) -> None:
        self.weight = config.weight

    def companions(
        self, example: Example, tokens: TokenPool, generated: GeneratedPool, layout: Layout
    ) -> list[Encoded | None]:
        """Inputs to score beside a pair, in the order of `Companions`; None where there is none.

        A right pair and a wrong one may have companions of different numbers.
        """
        raise NotImplementedError

    def __call__(self, logits_B: Tensor, companions: Companions) -> Tensor:
        """The term [B]; 0 for a pair without companions."""
        raise NotImplementedError


def _beyond(better: Tensor, worse: Tensor, margin: float) -> Tensor:
    """[μ − s(better) + s(worse)]₊."""
    return nn.functional.relu(margin - better + worse)


def grey_hinge(
    right_B: Tensor, grey_BK: Tensor, exists_BK: Tensor, wrong_B: Tensor, *, margin: float, wide_margin: float
) -> Tensor:
    """[μ₁ − s(r) + s(g)]₊ + [μ₁ − s(g) + s(n)]₊ + [μ₂ − s(r) + s(n)]₊, the terms with g averaged over the grey answers.

    Args:
        right_B: scores of the right answers.
        grey_BK: scores of their grey answers; only those count that `exists_BK`.
        wrong_B: scores of random wrong answers.
        margin: μ₁.
        wide_margin: μ₂.
    """
    terms_BK = _beyond(right_B[:, None], grey_BK, margin) + _beyond(grey_BK, wrong_B[:, None], margin)
    mean_B = (terms_BK * exists_BK).sum(1) / exists_BK.sum(1).clamp(min=1)
    return mean_B + _beyond(right_B, wrong_B, wide_margin)


@final
class GreyHinge(AbstractContrast):
    """Right above grey above random (GRAY, Lin et al. 2020: graded data, hinge losses).

    The paper's abstract tells of the order and the margins; scores on the scale of probabilities, the margins' values,
    two grey answers and one random one a context, and the mean over the grey ones are our reading. The random answer is
    one of the wrong candidates that the epoch drew for the pool: pools with random negatives suit the method best.
    """

    class Config(AbstractContrast.Config):
        """Settings of the grey hinge."""

        num_grey: int = Field(default=2, ge=1)
        """Grey answers a context."""
        margin: float = Field(default=0.2, ge=0)
        """μ₁: of right above grey, and of grey above random."""
        wide_margin: float = Field(default=0.4, ge=0)
        """μ₂ ≥ μ₁: of right above random."""
        probabilities: bool = True
        """Compare σ(logit); False compares logits, which wants margins of its own."""

        @model_validator(mode="after")
        def _wide_is_wider(self) -> Self:
            if self.margin > self.wide_margin:
                raise ValueError(
                    f"margin is {self.margin} and wide_margin {self.wide_margin}, but right is further above random "
                    "than above grey. Take margin ≤ wide_margin"
                )
            return self

        @property
        def wanted(self) -> Wanted:
            """Grey answers."""
            return "grey_answers"

        @property
        def num_answers(self) -> int:
            """As many as grey ones are compared."""
            return self.num_grey

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.config = config

    def companions(
        self, example: Example, tokens: TokenPool, generated: GeneratedPool, layout: Layout
    ) -> list[Encoded | None]:
        """For a right pair: a wrong candidate of the epoch's draw, and the grey answers."""
        labels = example.labels
        wrong = labels.candidates[labels.labels == 0]
        if not labels.labels[example.place] or not len(wrong):
            return []
        drawn = int(wrong[int(torch.randint(len(wrong), ()))])  # the loop seeds torch's generator for every update
        answers = [tokens.candidates[drawn], *generated.answers[: self.config.num_grey]]
        context = layout.context_ids(tokens.context, None)
        return [layout.pair(context, answer) for answer in answers]

    def __call__(self, logits_B: Tensor, companions: Companions) -> Tensor:
        """The hinge of each right pair."""
        right_B, others_BK = logits_B, companions.logits_BK
        if self.config.probabilities:
            right_B, others_BK = torch.sigmoid(right_B), torch.sigmoid(others_BK)
        hinge_B = grey_hinge(
            right_B, others_BK[:, 1:], companions.exists_BK[:, 1:], others_BK[:, 0],
            margin=self.config.margin, wide_margin=self.config.wide_margin,
        )  # fmt: skip
        return hinge_B * companions.exists_BK[:, 0]


@final
class PseudoPositives(AbstractContrast):
    """A wrong pair (q, a⁻) below what was made up for it, (q̂, a⁻) and (q, â) (BIG, Deng Y. et al. 2021).

    −log e^{s(q̂,a⁻)/τ} / (e^{s(q̂,a⁻)/τ} + e^{s(q,a⁻)/τ}), and the same with (q, â). The paper's abstract tells of the
    two generators and the contrast with the original negatives; this form of it, η = 1 and τ = 1 are ours.
    """

    class Config(AbstractContrast.Config):
        """Settings of the contrast with pseudo-positives."""

        weight: float = Field(default=1.0, ge=0)
        """η; 0 leaves the contrast out."""
        temperature: float = Field(default=1.0, gt=0)
        """τ."""

        @property
        def wanted(self) -> Wanted:
            """Right answers and contexts."""
            return "pseudo_positives"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.config = config

    def companions(
        self, example: Example, tokens: TokenPool, generated: GeneratedPool, layout: Layout
    ) -> list[Encoded | None]:
        """For a wrong pair: the wrong answer in its own context, and another right answer."""
        labels = example.labels
        if labels.labels[example.place]:
            return []
        number = int(labels.candidates[example.place])
        context = generated.contexts[number]
        return [
            layout.pair(layout.context_ids(context, None), tokens.candidates[number]) if context else None,
            *(layout.pair(layout.context_ids(tokens.context, None), answer) for answer in generated.answers[:1]),
        ]

    def __call__(self, logits_B: Tensor, companions: Companions) -> Tensor:
        """The two terms of each wrong pair; log(1 + e^{(s − ŝ)/τ}) is the printed form without its quotient."""
        gap_BK = (logits_B[:, None] - companions.logits_BK) / self.config.temperature
        return (nn.functional.softplus(gap_BK) * companions.exists_BK).sum(1)


class AugmentedCurriculum(AnswerCurriculum):
    """The batches of `AnswerCurriculum`; each plain pair brings its companions into the same forward pass.

    Companions come on top of `max_tokens_per_batch`: with one wrong candidate a right one, an update has up to five
    inputs for every two pairs with two grey answers, and four with pseudo-positives.

    Args:
        contrast: which companions, and what they add to a pair's loss.
        generated: the texts, by row of the pools.
    """

    def __init__(
        self,
        pools: Sequence[PairLabels],
        store: TokenStore,
        layout: Layout,
        loss: AbstractLoss,
        settings: TrainingSettings,
        *,
        num_intents: int,
        seed: int,
        contrast: AbstractContrast,
        generated: GeneratedStore,
    ) -> None:
        super().__init__(pools, store, layout, loss, settings, num_intents=num_intents, seed=seed)
        self._contrast, self._generated = contrast, generated

    def losses(
        self, forward: Callable[..., Any], examples: Sequence[Example], device: torch.device
    ) -> tuple[str, Tensor]:
        """Summed loss of the pairs with their companions; other tasks as ever."""
        if examples[0].task != "answer_plain":
            return super().losses(forward, examples, device)
        encoded, places = self._with_companions(examples)
        labels = torch.tensor([float(e.labels.labels[e.place]) for e in examples], device=device)
        loss = _PairsAndContrast(self._loss, self._contrast, torch.from_numpy(places).to(device))
        return "answer_contrast", forward(
            "answer", make_batch(encoded, self._layout, device), labels_B=labels, loss=loss
        ).sum()

    def _with_companions(self, examples: Sequence[Example]) -> tuple[list[Encoded], Any]:
        """Inputs of the B pairs and then of all companions; where each companion is [B, K], −1 for none."""
        pairs: list[Encoded] = []
        companions: list[list[Encoded | None]] = []
        for example in examples:
            tokens = self._store.pool(example.labels.row)
            pairs.append(encode(example, tokens, self._layout))
            generated = self._generated.pool(example.labels.row)
            companions.append(self._contrast.companions(example, tokens, generated, self._layout))
        places = np.full((len(pairs), max(1, *map(len, companions)) if companions else 1), -1)
        for row, own in enumerate(companions):
            for column, companion in enumerate(own):
                if companion is not None:
                    places[row, column] = len(pairs)
                    pairs.append(companion)
        return pairs, places


class _PairsAndContrast:
    """The loss of B pairs whose companions' logits follow theirs: what `Ranker.forward` takes."""

    def __init__(self, loss: Any, contrast: AbstractContrast, places_BK: Tensor) -> None:
        self._loss, self._contrast, self._places_BK = loss, contrast, places_BK

    def __call__(self, logits: Tensor, labels_B: Tensor) -> Tensor:
        logits_B = logits[: len(labels_B)]
        companions = Companions(logits[self._places_BK.clamp(min=0)], self._places_BK >= 0)
        return self._loss(logits_B, labels_B) + self._contrast.weight * self._contrast(logits_B, companions)
