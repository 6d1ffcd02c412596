"""Learning and measuring what a kind of post-training asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from icalib.core.seeding import child_seed
from icalib.data.encoding import Layout, TokenStore
from icalib.data.schema import Split
from icalib.data.selection import Selection
from icalib.encoders.backbone import Tokenizer
from icalib.models.precision import autocast, resolve_precision
from icalib.models.ranker import Ranker, make_batch
from icalib.training.post_training.masked_tokens import Vocabulary, hide
from icalib.training.post_training.task import AbstractPostTraining
from icalib.training.settings import TrainingSettings


class Outcome(NamedTuple):
    """What became of examples [B] or hidden words [N]: the loss of each, and whether the likeliest class was right."""

    losses: Tensor
    right: Tensor


class PostTrainingCurriculum:
    """A kind of post-training as the training loop wants it, with words hidden where the settings say so.

    Args:
        kind: makes the examples and asks about them.
        settings: those of the kind.
        layout: how inputs are written.
        vocabulary: what hidden words are replaced by.
    """

    def __init__(
        self, kind: AbstractPostTraining, settings: AbstractPostTraining.Config, layout: Layout, vocabulary: Vocabulary
    ) -> None:
        self._kind, self._settings, self._layout, self._vocabulary = kind, settings, layout, vocabulary

    def batches(self, epoch: int) -> Sequence[Sequence[Any]]:
        """All batches of an epoch."""
        return self._kind.batches(epoch)

    def losses(self, forward: Callable[..., Any], examples: Sequence[Any], device: torch.device) -> tuple[str, Tensor]:
        """Summed loss of the question, plus the masked-word loss (mean over the hidden words, times the examples)."""
        task, asked, words = self.outcomes(forward, examples, device)
        if words is None:
            return task, asked.losses.sum()
        word_loss = self._settings.masked_word_weight * len(examples) * words.losses.mean()
        return "post_training", asked.losses.sum() + word_loss

    def outcomes(
        self, forward: Callable[..., Any], examples: Sequence[Any], device: torch.device
    ) -> tuple[str, Outcome, Outcome | None]:
        """The task of a batch, the outcome of each example, and of each hidden word where words are hidden.

        Which words are hidden is drawn from torch's generator, which the loop seeds for every update.
        """
        task, head, encoded, classes = self._kind.asked(examples)
        classes_B = torch.tensor(classes, device=device)
        if self._settings.masked_word_weight == 0:
            logits = forward("question", make_batch(encoded, self._layout, device), head=head)
            return task, _outcome(logits, classes_B), None
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        hidden = hide(encoded, self._settings.masked_share, self._layout, self._vocabulary, rng)
        logits, word_logits_NV = forward(
            "question",
            make_batch(hidden.encoded, self._layout, device),
            head=head,
            places_N2=torch.from_numpy(hidden.places_N2).to(device),
        )
        words_N = torch.from_numpy(hidden.words_N).to(device)
        return task, _outcome(logits, classes_B), _outcome(word_logits_NV, words_N)


def _outcome(logits: Tensor, classes: Tensor) -> Outcome:
    """From logits of classes [N, K], or of the second of two classes [N]."""
    if logits.ndim == 1:
        losses = nn.functional.binary_cross_entropy_with_logits(logits, classes.to(logits.dtype), reduction="none")
        return Outcome(losses, (logits > 0) == (classes == 1))
    logits = logits.float()
    return Outcome(nn.functional.cross_entropy(logits, classes, reduction="none"), logits.argmax(-1) == classes)


def post_training_curriculum(
    settings: AbstractPostTraining.Config, ranker: Ranker, store: TokenStore, selection: Selection, split: Split
) -> PostTrainingCurriculum:
    """What a ranker learns from the contexts of a split's pools, labelled or not.

    Raises:
        SettingError: the contexts hold no windows.
    """
    rows = selection.rows(split, "all", store.column("label_order")).tolist()
    words = Vocabulary(Tokenizer(ranker.config.encoder.backbone).mask_token, ranker.encoder.vocabulary)
    kind = settings.build(store=store, rows=rows, layout=ranker.layout)
    return PostTrainingCurriculum(kind, settings, ranker.layout, words)


class HeldOutWindows:
    """Accuracy and mean loss of each task on windows that aren't learnt from: the same ones after every epoch.

    Args:
        curriculum: over held-out windows.
        settings: decide precision.
        seed: decides which words are hidden.
    """

    def __init__(
        self, curriculum: PostTrainingCurriculum, settings: TrainingSettings, device: torch.device, seed: int
    ) -> None:
        self._curriculum, self._device, self._seed = curriculum, device, seed
        self._batches = curriculum.batches(0)
        self._precision: Literal["fp32", "bf16"] = resolve_precision(settings.precision, device)

    def __call__(self, ranker: Ranker, rank: int, world_size: int, /) -> list[tuple[str, float, float, int]]:
        """(task, summed loss, number of right ones, number) for every world-size-th batch."""
        found: list[tuple[str, float, float, int]] = []
        with torch.inference_mode(), autocast(self._device, self._precision):
            for number in range(rank, len(self._batches), world_size):
                torch.manual_seed(child_seed(self._seed, "held-out", number))  # every update seeds its own
                task, asked, words = self._curriculum.outcomes(ranker, self._batches[number], self._device)
                for name, outcome in ((task, asked), ("masked_words", words)):
                    if outcome is not None:
                        sums = float(outcome.losses.sum()), float(outcome.right.sum())
                        found.append((name, *sums, len(outcome.losses)))
        return found

    def figures(self, shares: Sequence[list[tuple[str, float, float, int]]]) -> dict[str, float]:
        """`held_out/<task>/accuracy` and `held_out/<task>/loss`."""
        sums: dict[str, list[float]] = {}
        for name, *parts in (part for share in shares for part in share):
            sums[name] = [a + b for a, b in zip(sums.get(name, (0.0, 0.0, 0.0)), parts, strict=True)]
        return {
            f"held_out/{name}/{figure}": value / number
            for name, (loss, right, number) in sums.items()
            for figure, value in (("accuracy", right), ("loss", loss))
        }
