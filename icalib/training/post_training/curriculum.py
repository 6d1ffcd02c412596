"""Curriculum, masked tokens and held-out metrics of a post-training task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from icalib.core.seeding import child_seed
from icalib.data.encoding import Encoded, Ids, Layout, TokenStore
from icalib.data.schema import Split
from icalib.data.selection import Selection
from icalib.encoders.backbone import Tokenizer
from icalib.encoders.transfer import to_device
from icalib.models.model import Model
from icalib.models.precision import autocast, resolve_precision
from icalib.models.ranker import Ranker, make_batch
from icalib.training.loop import Curriculum
from icalib.training.post_training.task import WindowTask
from icalib.training.settings import TrainingSettings


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


class Outcome(NamedTuple):
    """Loss of each example [B] or masked token [N], and whether its most probable class is right."""

    losses: Tensor
    right: Tensor


class PostTrainingCurriculum:
    """A post-training task as a `Curriculum`, with masked tokens if `masked_word_weight` is above 0."""

    def __init__(self, task: WindowTask, settings: WindowTask.Config, layout: Layout, vocabulary: Vocabulary) -> None:
        self._task, self._settings, self._layout, self._vocabulary = task, settings, layout, vocabulary

    def batches(self, epoch: int) -> Sequence[Sequence[Any]]:
        """Return all batches of an epoch."""
        return self._task.batches(epoch)

    def losses(self, forward: Callable[..., Any], examples: Sequence[Any], device: torch.device) -> tuple[str, Tensor]:
        """Return the summed task loss plus that of masked tokens, their mean times the number of examples."""
        task, classified, tokens = self.outcomes(forward, examples, device)
        if tokens is None:
            return task, classified.losses.sum()
        token_loss = self._settings.masked_word_weight * len(examples) * tokens.losses.mean()
        return "post_training", classified.losses.sum() + token_loss

    def outcomes(
        self, forward: Callable[..., Any], examples: Sequence[Any], device: torch.device
    ) -> tuple[str, Outcome, Outcome | None]:
        """Return the task of a batch, the outcomes of its examples, and those of masked tokens if any are masked, which
        are drawn from torch's generator: the loop seeds it for every update.
        """
        task, head, encoded, classes = self._task.collate(examples)
        classes_B = to_device(torch.tensor(classes), device)
        if self._settings.masked_word_weight == 0:
            logits = forward("classify", make_batch(encoded, self._layout, device), head=head)
            return task, _outcome(logits, classes_B), None
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        masked = mask_tokens(encoded, self._settings.masked_share, self._layout, self._vocabulary, rng)
        logits, token_logits_NV = forward(
            "classify",
            make_batch(masked.encoded, self._layout, device),
            head=head,
            positions_N2=to_device(torch.from_numpy(masked.positions_N2), device),
        )
        tokens_N = to_device(torch.from_numpy(masked.tokens_N), device)
        return task, _outcome(logits, classes_B), _outcome(token_logits_NV, tokens_N)


def _outcome(logits: Tensor, classes: Tensor) -> Outcome:
    logits = logits.float()
    return Outcome(nn.functional.cross_entropy(logits, classes, reduction="none"), logits.argmax(-1) == classes)


def post_training_curriculum(
    settings: WindowTask.Config, ranker: Ranker, store: TokenStore, selection: Selection, split: Split
) -> PostTrainingCurriculum:
    """Build the curriculum of a post-training task on the contexts of a split's pools, labelled or not."""
    rows = selection.rows(split, "all", store.column("label_order")).tolist()
    vocabulary = Vocabulary(Tokenizer(ranker.config.encoder.backbone).mask_token, ranker.encoder.vocabulary)
    task = settings.build(store=store, rows=rows, layout=ranker.layout)
    return PostTrainingCurriculum(task, settings, ranker.layout, vocabulary)


class Judged(Curriculum, Protocol):
    """A curriculum whose examples are right or wrong."""

    def outcomes(
        self, forward: Callable[..., Any], examples: Sequence[Any], device: torch.device
    ) -> tuple[str, Outcome, Outcome | None]:
        """Return the task of a batch, the outcomes of its examples, and those of masked tokens if any are masked."""
        ...


class HeldOutWindows:
    """Accuracy and mean loss of each task on held-out windows, the same windows after every epoch."""

    def __init__(self, curriculum: Judged, settings: TrainingSettings, device: torch.device, seed: int) -> None:
        self._curriculum, self._device, self._seed = curriculum, device, seed
        self._batches = curriculum.batches(0)
        self._precision: Literal["fp32", "bf16"] = resolve_precision(settings.precision, device)

    def __call__(self, model: Model, rank: int, world_size: int, /) -> list[tuple[str, float, float, int]]:
        """Return (task, summed loss, number right, number of examples) for every world-size-th batch."""
        found: list[tuple[str, float, float, int]] = []
        with torch.inference_mode(), autocast(self._device, self._precision):
            for number in range(rank, len(self._batches), world_size):
                torch.manual_seed(child_seed(self._seed, "held-out", number))  # every update seeds its own
                task, classified, tokens = self._curriculum.outcomes(model, self._batches[number], self._device)
                for name, outcome in ((task, classified), ("masked_words", tokens)):
                    if outcome is not None:
                        sums = float(outcome.losses.sum()), float(outcome.right.sum())
                        found.append((name, *sums, len(outcome.losses)))
        return found

    def metrics(self, results: Sequence[list[tuple[str, float, float, int]]]) -> dict[str, float]:
        """Compute `held_out/<task>/accuracy` and `held_out/<task>/loss` from all workers' results."""
        sums: dict[str, list[float]] = {}
        for name, *terms in (batch for result in results for batch in result):
            sums[name] = [a + b for a, b in zip(sums.get(name, (0.0, 0.0, 0.0)), terms, strict=True)]
        return {
            f"held_out/{name}/{metric}": value / number
            for name, (loss, right, number) in sums.items()
            for metric, value in (("accuracy", right), ("loss", loss))
        }
