"""Post-training of the cross-encoder: which of some similar utterances follows a context?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from icalib.core.seeding import child_seed
from icalib.data.encoding import Encoded, Ids, Layout
from icalib.models.ranker import ANSWER, make_batch
from icalib.training.post_training.bm25 import SimilarTexts
from icalib.training.post_training.contrastive import Contrastive
from icalib.training.post_training.curriculum import Outcome
from icalib.training.post_training.responses import Corpus, Responses
from icalib.training.post_training.task import AbstractPostTraining, batched
from icalib.training.settings import EpochsRequired, TrainingSettings

_TASK = "response_selection"


class _Example(NamedTuple):
    texts: tuple[int, ...]  # indices in `Responses`: the target, then the wrong ones
    length: int


@final
class ResponseSelection(AbstractPostTraining):
    """Contrastive post-training of the bi-encoder, then of the cross-encoder on pools made from the same dialogues.

    A pool is a context with its own target and `num_negatives` of the targets that BM25 finds for it, so it is as hard
    as the pools with BM25 negatives. The loss is a softmax over the pool, which asks for what ranking needs; the logit
    contains the cosine of the bi-encoder, so the cross-encoder learns what that can't tell.

    Args:
        config: the settings.
        corpus: what is read.
        layout: assembles the inputs.

    Raises:
        SettingError: the dialogues contain no two different targets.
    """

    class Config(AbstractPostTraining.Config):
        """Settings of post-training by response selection."""

        contrastive: Contrastive.Config = Contrastive.Config()
        """The bi-encoder's post-training, which comes first; its `targets` and `context_turns` apply to both."""
        training: EpochsRequired = TrainingSettings(epochs=1, learning_rate=5e-5, head_learning_rate=1e-3, batch_size=8)
        """Optimiser and schedule of the cross-encoder; `batch_size` counts contexts. Without validation, the last
        weights are kept."""
        max_windows: int | None = Field(default=2000, ge=1)
        """Maximum number of contexts per epoch, drawn again each epoch; None uses all."""
        num_negatives: int = Field(default=4, ge=1)
        """Number of wrong utterances beside each target, drawn from the nine most similar to it (BM25) among all
        targets; if there are fewer, at random."""

    def __init__(self, config: Config, *, corpus: Corpus, layout: Layout) -> None:
        self.config, self._layout = config, layout
        self._responses = Responses(corpus, config.contrastive.targets, config.contrastive.context_turns)
        self._similar = SimilarTexts([self._responses.target(index) for index in range(len(self._responses))])

    def batches(self, epoch: int) -> list[list[_Example]]:
        """Return an epoch's batches, of pools of similar length."""
        rng = np.random.default_rng(child_seed(self.config.seed, "contexts", epoch))
        total = len(self._responses)
        chosen = rng.choice(total, min(self.config.max_windows or total, total), replace=False)
        return batched([self._example(int(index), rng) for index in chosen], self.config.training, rng)

    def _example(self, index: int, rng: np.random.Generator) -> _Example:
        similar = self._similar.rows(index)
        number = min(self.config.num_negatives, len(similar))
        texts = (index, *rng.choice(similar, number, replace=False).tolist(), *self._others(index, number, rng))
        context = sum(map(len, self._responses.context(index)))
        longest = max(len(self._candidate(text)) for text in texts)
        return _Example(texts, len(texts) * (context + longest))

    def _others(self, index: int, number: int, rng: np.random.Generator) -> list[int]:
        """Return random targets in place of those that BM25 doesn't find; an equal text is no wrong one."""
        keys, missing = self._responses.keys, self.config.num_negatives - number
        if not missing:
            return []
        return rng.choice(np.flatnonzero(keys != keys[index]), missing).tolist()

    def losses(self, forward: Callable[..., Any], examples: Sequence[Any], device: torch.device) -> tuple[str, Tensor]:
        """Return the summed loss of some pools."""
        return _TASK, self._outcome(self._logits(forward, examples, device)).losses.sum()

    def outcomes(
        self, forward: Callable[..., Any], examples: Sequence[Any], device: torch.device
    ) -> tuple[str, Outcome, None]:
        """Return the loss of each pool and whether its own target has the highest logit."""
        return _TASK, self._outcome(self._logits(forward, examples, device)), None

    def _logits(self, forward: Callable[..., Any], examples: Sequence[_Example], device: torch.device) -> Tensor:
        """Return the logits [P, 1 + negatives] of some pools, those of the targets first."""
        batch = make_batch([pair for example in examples for pair in self.pairs(example)], self._layout, device)
        return forward("classify", batch, head=ANSWER).float().unflatten(0, (len(examples), -1))

    def pairs(self, example: _Example) -> list[Encoded]:
        """Return the inputs of a pool, the target first."""
        candidates = [self._candidate(text) for text in example.texts]
        return self._layout.inputs(self._responses.context(example.texts[0]), None, candidates)

    def _candidate(self, text: int) -> Ids:
        """Return a target as pools have it, cut to the budget of candidates."""
        return self._responses.target(text)[: self._layout.budget.max_candidate_tokens]

    def _outcome(self, logits_PC: Tensor) -> Outcome:
        targets_P = torch.zeros(len(logits_PC), dtype=torch.long, device=logits_PC.device)
        losses_P = nn.functional.cross_entropy(logits_PC, targets_P, reduction="none")
        return Outcome(losses_P, logits_PC.argmax(1) == 0)
