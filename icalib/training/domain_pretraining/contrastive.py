"""Contrastive domain pre-training of the bi-encoder: which utterance of the batch follows which context?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from icalib.core.combination import TRAINING, Capabilities
from icalib.core.seeding import child_seed
from icalib.data.encoding import Encoded, Ids, Keys, Layout
from icalib.encoders.transfer import to_device
from icalib.models.ranker import make_batch
from icalib.training.domain_pretraining.responses import Corpus, Responses, Targets
from icalib.training.domain_pretraining.task import AbstractDomainPretraining
from icalib.training.examples import batched
from icalib.training.loop import JointCurriculum
from icalib.training.settings import EpochsRequired, TrainingSettings


class _Example(NamedTuple):
    response: int  # index of the target in `Responses`
    length: int


@final
class Contrastive(AbstractDomainPretraining, JointCurriculum):
    """In-batch negatives: a softmax over the targets of a batch for every context (Henderson et al. 2017).

    The cosine of a context and its own target competes with those of all other, different targets of the batch.
    Gradients are cached (Gao et al. 2021), so the loss is that of the whole batch on all workers and memory holds one
    part of it. The bi-encoder starts the parts similarity, intent (whose vectors it gives) and the cross-encoder. A
    SettingError says that the dialogues contain no two different targets.
    """

    class Config(AbstractDomainPretraining.Config):
        """Settings of contrastive domain pre-training."""

        training: EpochsRequired = TrainingSettings(epochs=1, max_tokens_per_batch=16384)
        """Optimiser and schedule; without validation, the last weights are kept. A larger `batch_size` has more
        negatives and fewer updates; `gradient_accumulation` splits it to save memory."""
        max_windows: int | None = Field(default=16000, ge=1)
        """Maximum number of pairs of context and target per epoch, drawn again each epoch; None uses all."""
        targets: Targets = "logs"
        """Utterances that are predicted. `windows`: those in contexts of training pools, save candidates of any pool.
        `logs`: also those of the dialogues that were prepared with `--logs`, by the same rule, and none of a dialogue
        that contains a candidate of a validation or test pool. `replies`: also the right candidates of all training
        pools whose label is known, labelled fraction or not. That is practical where logs contain the true replies;
        the papers' protocol forbids it, and reports say so. Parts that correct the bi-encoder then see it on pools
        whose replies it has read."""
        temperature: float = Field(default=0.05, gt=0)
        """Divides the cosines before the softmax."""
        context_turns: int = Field(default=4, ge=1)
        """Maximum number of utterances in a context, the last ones."""

        @override
        def requires(self) -> Capabilities:
            return super().requires() - {TRAINING}  # the bi-encoder ranks by itself

    def __init__(self, config: Config, *, corpus: Corpus, layout: Layout) -> None:
        self.config, self._layout = config, layout
        self._responses = Responses(corpus, config.targets, config.context_turns)

    def batches(self, epoch: int) -> list[list[_Example]]:
        """Return an epoch's batches, of pairs of similar length."""
        rng = np.random.default_rng(child_seed(self.config.seed, "contexts", epoch))
        total = len(self._responses)
        chosen = rng.choice(total, min(self.config.max_windows or total, total), replace=False)
        return batched([self._example(int(index)) for index in chosen], self.config.training, rng)

    def _example(self, index: int) -> _Example:
        return _Example(index, sum(map(len, self._responses.context(index))) + len(self._responses.target(index)))

    def represent(self, forward: Callable[..., Any], examples: Sequence[_Example], device: torch.device) -> Tensor:
        """Return the vectors of context and target of each example; [B, 2, D]."""
        contexts = [self._framed(self._layout.context_ids(self._responses.context(e.response), None)) for e in examples]
        maximum = self._layout.budget.max_candidate_tokens
        responses = [self._framed(self._responses.target(example.response)[:maximum]) for example in examples]
        contexts_BD, responses_BD = forward(
            make_batch(contexts, self._layout, device), make_batch(responses, self._layout, device)
        )
        return torch.stack([contexts_BD, responses_BD], 1)

    def compare(self, representations: Tensor, examples: Sequence[_Example]) -> tuple[str, Tensor]:
        """Return the summed loss of a batch from the vectors of all its texts."""
        keys_B1 = self._responses.keys[np.array([[example.response] for example in examples])]
        number_B = np.ones(len(examples), np.int64)
        losses_B = in_batch_losses(representations, keys_B1, number_B, self.config.temperature)
        return "contrastive", losses_B.sum()

    def _framed(self, ids: Ids) -> Encoded:
        framed = self._layout.single(ids)
        return framed, len(framed)


def in_batch_losses(
    vectors_BTD: Tensor,
    keys_BT: Keys,
    number_B: npt.NDArray[np.int64],
    temperature: float,
    precision_B: npt.NDArray[np.float64] | None = None,
) -> Tensor:
    """Compare each context with the texts of all contexts of the batch that differ from its own target (Henderson et
    al. 2017).

    Args:
        vectors_BTD: of length 1: the context, its target, and T − 2 further texts of each example.
        keys_BT: the texts' keys, those of the targets first; [B, T − 1]. Equal texts have equal keys.
        number_B: how many of an example's T − 1 texts count, the first ones; the others only fill it up.
        precision_B: probability that the target is the right one; otherwise each of its example's further texts is
            equally probable. None: 1.

    Returns:
        Cross-entropy of a softmax over the texts with those probabilities, [B]; of the target alone where its is 1.
    """
    contexts_BD, texts_ND = vectors_BTD[:, 0], vectors_BTD[:, 1:].flatten(0, 1)
    logits_BN = contexts_BD @ texts_ND.T / temperature
    num_texts = keys_BT.shape[1]
    is_rival_BN = keys_BT[:, :1] != keys_BT.reshape(1, -1)
    is_rival_BN &= (np.arange(num_texts) < number_B[:, None]).reshape(1, -1)
    target_B = np.arange(len(keys_BT)) * num_texts
    is_rival_BN[np.arange(len(keys_BT)), target_B] = True
    logits_BN = logits_BN.masked_fill(to_device(torch.from_numpy(~is_rival_BN), logits_BN.device), -torch.inf)
    targets_B = to_device(torch.from_numpy(target_B), logits_BN.device)
    losses_B = nn.functional.cross_entropy(logits_BN, targets_B, reduction="none")
    if precision_B is None or (precision_B == 1).all():
        return losses_B
    is_other_BN = is_rival_BN & (np.arange(is_rival_BN.shape[1]) // num_texts == np.arange(len(keys_BT))[:, None])
    is_other_BN[np.arange(len(keys_BT)), target_B] = False
    others_BN = is_other_BN / np.maximum(is_other_BN.sum(1, keepdims=True), 1)
    is_other_BN, others_BN = (to_device(torch.from_numpy(one), logits_BN.device) for one in (is_other_BN, others_BN))
    log_prob_BN = torch.where(is_other_BN, nn.functional.log_softmax(logits_BN, 1), 0.0)  # 0 · −∞ would be NaN
    precision = to_device(torch.from_numpy(precision_B).to(logits_BN.dtype), logits_BN.device)
    return precision * losses_B - (1 - precision) * (others_BN.to(logits_BN.dtype) * log_prob_BN).sum(1)
