"""Training on labelled pools and on texts that were generated for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self, final

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.functional import relu, softplus
from typing_extensions import override

from icalib.core.component import Component, ComponentConfig
from icalib.data.encoding import Encoded, Layout, TokenPool
from icalib.data.generated import GeneratedPool, GeneratedStore, TextKind
from icalib.encoders.transfer import to_device
from icalib.heads.head import pair_losses
from icalib.models.ranker import make_batch
from icalib.training.examples import Example, encode
from icalib.training.pairs import AnswerCurriculum


class ContrastLogits(NamedTuple):
    """Logits [B, K] of the K contrast inputs of each pair, and which of these inputs exist."""

    logits_BK: Tensor
    exists_BK: Tensor


class AbstractContrast(Component):
    """Loss term that compares the logit of a pair with those of contrast inputs, such as generated texts."""

    class Config(ComponentConfig):
        """Base of contrasts' settings."""

        weight: float = Field(default=1.0, ge=0)
        """Weight of the term, added to the loss of the pair; 0 disables it."""

        wanted: ClassVar[TextKind]
        """Which texts must be generated."""

        @property
        def num_answers(self) -> int:
            """Number of answers to generate for each context."""
            return 1

    def __init__(self, config: Any) -> None:
        self.config = config

    def inputs(
        self, example: Example, tokens: TokenPool, generated: GeneratedPool, layout: Layout
    ) -> list[Encoded | None]:
        """Return the contrast inputs of a pair, in the order of `ContrastLogits`; None for a missing one."""
        raise NotImplementedError

    def __call__(self, logits_B: Tensor, others: ContrastLogits) -> Tensor:
        """Compute the term [B]; 0 for a pair without contrast inputs."""
        raise NotImplementedError


def grey_hinge(
    right_B: Tensor, grey_BK: Tensor, exists_BK: Tensor, wrong_B: Tensor, *, margin: float, wide_margin: float
) -> Tensor:
    """Compute [μ₁ − s(r) + s(g)]₊ + [μ₁ − s(g) + s(n)]₊ + [μ₂ − s(r) + s(n)]₊, averaged over the grey answers g that
    exist; `margin` is μ₁, `wide_margin` μ₂.
    """
    terms_BK = relu(margin - right_B[:, None] + grey_BK) + relu(margin - grey_BK + wrong_B[:, None])
    mean_B = (terms_BK * exists_BK).sum(1) / exists_BK.sum(1).clamp(min=1)
    return mean_B + relu(wide_margin - right_B + wrong_B)


@final
class GreyHinge(AbstractContrast):
    """Hinge losses that order right above grey above random answers (GRAY, Lin et al. 2020).

    The order and the margins are from the paper's abstract; scores as probabilities, values, numbers of answers and the
    mean over grey ones are our choice. The random answer is a wrong candidate of this epoch's draw.
    """

    class Config(AbstractContrast.Config):
        """Settings of the grey hinge."""

        wanted: ClassVar[TextKind] = "grey_answers"

        num_grey: int = Field(default=2, ge=1)
        """Number of grey answers per context."""
        margin: float = Field(default=0.2, ge=0)
        """μ₁: margin of σ(logit) of right above grey, and of grey above random answers."""
        wide_margin: float = Field(default=0.4, ge=0)
        """μ₂ ≥ μ₁: margin of right above random answers."""

        @model_validator(mode="after")
        def _check_margins(self) -> Self:
            if self.margin > self.wide_margin:
                raise ValueError(
                    f"found margin {self.margin} and wide_margin {self.wide_margin}; right answers must be further "
                    "above random answers than above grey ones. Set margin ≤ wide_margin"
                )
            return self

        @property
        @override
        def num_answers(self) -> int:
            return self.num_grey

    @override
    def inputs(
        self, example: Example, tokens: TokenPool, generated: GeneratedPool, layout: Layout
    ) -> list[Encoded | None]:
        """Return, for a right pair, a wrong candidate of this epoch's draw and the grey answers."""
        labels = example.labels
        wrong = labels.candidates[labels.labels == 0]
        if not labels.labels[example.position] or not len(wrong):
            return []
        drawn = int(wrong[int(torch.randint(len(wrong), ()))])  # the loop seeds torch's generator for every update
        answers = [tokens.candidates[drawn], *generated.answers[: self.config.num_grey]]
        context = layout.context_ids(tokens.context, None)
        return [layout.pair(context, answer) for answer in answers]

    @override
    def __call__(self, logits_B: Tensor, others: ContrastLogits) -> Tensor:
        others_BK = torch.sigmoid(others.logits_BK)
        hinge_B = grey_hinge(
            torch.sigmoid(logits_B), others_BK[:, 1:], others.exists_BK[:, 1:], others_BK[:, 0],
            margin=self.config.margin, wide_margin=self.config.wide_margin,
        )  # fmt: skip
        return hinge_B * others.exists_BK[:, 0]


@final
class PseudoPositives(AbstractContrast):
    """Contrast of a wrong pair (q, a⁻) with the generated positives (q̂, a⁻) and (q, â) (BIG, Deng Y. et al. 2021).

    The term is −log e^{s(q̂,a⁻)/τ} / (e^{s(q̂,a⁻)/τ} + e^{s(q,a⁻)/τ}), plus the same with (q, â). The paper's abstract
    has the generators and the contrast; this form, η = 1 and τ = 1 are our choice.
    """

    class Config(AbstractContrast.Config):
        """Settings of the contrast with pseudo-positives."""

        wanted: ClassVar[TextKind] = "pseudo_positives"

        weight: float = Field(default=1.0, ge=0)
        """η, the weight of the contrast; 0 disables it."""
        temperature: float = Field(default=1.0, gt=0)
        """τ, the temperature."""

    @override
    def inputs(
        self, example: Example, tokens: TokenPool, generated: GeneratedPool, layout: Layout
    ) -> list[Encoded | None]:
        """Return, for a wrong pair, the wrong answer in a context that it fits, and a generated right answer."""
        labels = example.labels
        if labels.labels[example.position]:
            return []
        index = int(labels.candidates[example.position])
        context = generated.contexts[index]
        return [
            layout.pair(layout.context_ids(context, None), tokens.candidates[index]) if context else None,
            *(layout.pair(layout.context_ids(tokens.context, None), answer) for answer in generated.answers[:1]),
        ]

    @override
    def __call__(self, logits_B: Tensor, others: ContrastLogits) -> Tensor:
        """Compute the two terms of each wrong pair as log(1 + e^{(s − ŝ)/τ}), which is the quotient simplified."""
        gap_BK = (logits_B[:, None] - others.logits_BK) / self.config.temperature
        return (softplus(gap_BK) * others.exists_BK).sum(1)


@dataclass(kw_only=True)
class AugmentedCurriculum(AnswerCurriculum):
    """The batches of `AnswerCurriculum`, with the contrast inputs of plain pairs added to the same forward pass.

    They are not counted in `max_tokens_per_batch`: with one wrong candidate per right one, two pairs have up to five.
    """

    contrast: AbstractContrast
    generated: GeneratedStore

    def losses(
        self, forward: Callable[..., Any], examples: Sequence[Example], device: torch.device
    ) -> tuple[str, Tensor]:
        """Return the summed loss of the pairs with their contrast inputs; other tasks are unchanged."""
        if examples[0].task != "answer_plain":
            return super().losses(forward, examples, device)
        encoded, indices = self._with_contrast_inputs(examples)
        labels = to_device(torch.tensor([float(e.labels.labels[e.position]) for e in examples]), device)
        loss = _PairsAndContrast(self.loss, self.contrast, to_device(torch.from_numpy(indices), device))
        batch = make_batch(encoded, self.layout, device)
        return "answer_contrast", forward("answer", batch, labels_B=labels, loss=loss).sum()

    def _with_contrast_inputs(self, examples: Sequence[Example]) -> tuple[list[Encoded], Any]:
        """Return the inputs of B pairs and then of contrasts, and the indices [B, K] of the latter (−1 for none)."""
        encoded: list[Encoded] = []
        contrast: list[list[Encoded | None]] = []
        for example in examples:
            tokens = self.store.pool(example.labels.row)
            encoded.append(encode(example, tokens, self.layout))
            inputs: list[Encoded | None] = []
            if self.generated.has(example.labels.row):
                generated = self.generated.pool(example.labels.row)
                inputs = self.contrast.inputs(example, tokens, generated, self.layout)
            contrast.append(inputs)
        indices = np.full((len(encoded), max(1, *map(len, contrast)) if contrast else 1), -1)
        for row, inputs in enumerate(contrast):
            for column, ids in enumerate(inputs):
                if ids is not None:
                    indices[row, column] = len(encoded)
                    encoded.append(ids)
        return encoded, indices


@dataclass
class _PairsAndContrast:
    """Loss of B pairs followed by their contrast inputs, for `Ranker.forward`."""

    loss: Any
    contrast: AbstractContrast
    indices_BK: Tensor

    def __call__(self, logits: Tensor, labels_B: Tensor) -> Tensor:
        logits_B = logits[: len(labels_B)]
        others = ContrastLogits(logits[self.indices_BK.clamp(min=0)], self.indices_BK >= 0)
        losses_B = pair_losses(self.loss, logits_B, labels_B)
        return losses_B + self.contrast.config.weight * self.contrast(logits_B, others)
