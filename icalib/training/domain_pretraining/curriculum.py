"""Curriculum of a domain pre-training task, and masked tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from icalib.data.encoding import Encoded, Ids, Layout, TokenStore
from icalib.encoders.backbone import Tokenizer
from icalib.encoders.transfer import to_device
from icalib.models.ranker import Ranker, make_batch
from icalib.training.domain_pretraining.task import WindowTask

_MASKED_FRACTION = 0.15  # of the tokens: Devlin et al. 2019, §3.1


class Vocabulary(NamedTuple):
    """Replacements of masked tokens: the id of [MASK], or a random id below `size`."""

    mask_token: int
    size: int


class MaskedInputs(NamedTuple):
    """Inputs with masked tokens, the (input, position) of each of them, and its original id."""

    encoded: list[Encoded]
    positions_N2: npt.NDArray[np.int64]
    tokens_N: npt.NDArray[np.int64]


def mask_tokens(
    encoded: Sequence[Encoded], fraction: float, layout: Layout, vocabulary: Vocabulary, rng: np.random.Generator
) -> MaskedInputs:
    """Choose a fraction of each input's tokens, at least one and no special ones, and mask them (Devlin et al. 2019,
    §3.1): 80 % become [MASK], 10 % a random token, and 10 % stay unchanged.
    """
    special = [layout.cls, layout.separator]
    masked: list[Encoded] = []
    positions: list[tuple[int, int]] = []
    tokens: list[int] = []
    for row, (ids, start) in enumerate(encoded):
        eligible = np.flatnonzero(~np.isin(ids, special))
        chosen = np.sort(rng.choice(eligible, max(1, round(len(eligible) * fraction)), False))
        tokens += ids[chosen].tolist()
        positions += [(row, int(position)) for position in chosen]
        masked.append((_replaced(ids, chosen, vocabulary, rng), start))
    return MaskedInputs(masked, np.array(positions, np.int64), np.array(tokens, np.int64))


def _replaced(ids: Ids, chosen: npt.NDArray[np.int64], vocabulary: Vocabulary, rng: np.random.Generator) -> Ids:
    replaced = ids.copy()
    draws = rng.random(len(chosen))
    replaced[chosen[draws < 0.8]] = vocabulary.mask_token
    other = chosen[(draws >= 0.8) & (draws < 0.9)]
    replaced[other] = rng.integers(vocabulary.size, size=len(other))
    return replaced


class DomainPretrainingCurriculum:
    """A task on the contexts of some pools, labelled or not, with masked tokens if `masked_word_weight` is above 0."""

    def __init__(self, settings: WindowTask.Config, ranker: Ranker, store: TokenStore, rows: Sequence[int]) -> None:
        self._settings, self._layout = settings, ranker.layout
        self._vocabulary = Vocabulary(Tokenizer(ranker.config.encoder.backbone).mask_token, ranker.encoder.vocabulary)
        self._task: WindowTask = settings.build(store=store, rows=rows, layout=ranker.layout)

    def batches(self, epoch: int) -> Sequence[Sequence[Any]]:
        """Return all batches of an epoch."""
        return self._task.batches(epoch)

    def losses(self, forward: Callable[..., Any], examples: Sequence[Any], device: torch.device) -> tuple[str, Tensor]:
        """Return the summed task loss plus that of masked tokens, the sum of each example's mean over its own: a mean
        over all tokens would weigh them by the workers and parts of an update.

        The tokens are drawn from torch's generator, which the loop seeds for every update.
        """
        task, encoded, classes = self._task.collate(examples)
        classes_B = to_device(torch.tensor(classes), device)
        if self._settings.masked_word_weight == 0:
            logits_BK = forward("classify", make_batch(encoded, self._layout, device), head=task)
            return task, _losses(logits_BK, classes_B).sum()
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        masked = mask_tokens(encoded, _MASKED_FRACTION, self._layout, self._vocabulary, rng)
        logits_BK, token_logits_NV = forward(
            "classify",
            make_batch(masked.encoded, self._layout, device),
            head=task,
            positions_N2=to_device(torch.from_numpy(masked.positions_N2), device),
        )
        tokens_N, share_N = (
            to_device(torch.from_numpy(one), device) for one in (masked.tokens_N, _share_of_example(masked))
        )
        token_loss = (_losses(token_logits_NV, tokens_N) * share_N).sum()
        return "domain_pretraining", _losses(
            logits_BK, classes_B
        ).sum() + self._settings.masked_word_weight * token_loss


def _share_of_example(masked: MaskedInputs) -> npt.NDArray[np.float32]:
    """Return 1 / (number of masked tokens of its input) for each masked token."""
    row_N = masked.positions_N2[:, 0]
    return (1 / np.bincount(row_N)[row_N]).astype(np.float32)


def _losses(logits: Tensor, classes: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.float(), classes, reduction="none")
