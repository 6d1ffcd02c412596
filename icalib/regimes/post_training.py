"""Post-training on the corpus' own dialogues: next-utterance discrimination, and masked words if wanted.

The labels are free (BERT_FP, Han et al. 2021), and no answer of an unlabelled pool is used: targets
are utterances inside contexts, and none that is a candidate of a pool of the same dialogue. So one post-trained
model serves every labelled fraction. What differs from BERT_FP: the next-utterance question is asked of the answer
head, as yes or no, so that the head itself has a start; and by default no wrong utterance comes from the same dialogue
and no word is hidden, which BERT_FP's 25 epochs can afford and one epoch can't.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor, nn

from icalib.core.component import Settings
from icalib.core.errors import SettingError
from icalib.core.seeding import child_seed
from icalib.data.batching import shuffled_batches
from icalib.data.encoding import Encoded, Ids, Layout, TokenStore
from icalib.data.negatives import bm25_matrices
from icalib.losses.binary import BinaryCrossEntropy
from icalib.regimes.ranker import make_batch
from icalib.regimes.training import TrainingSettings

_MAX_DRAWS = 100
_NUM_SIMILAR = 9  # as many as a pool of ten has
_LOSS = BinaryCrossEntropy.Config().build()


class PostTraining(Settings):
    """Settings of post-training."""

    training: TrainingSettings = TrainingSettings(
        epochs=1, learning_rate=5e-5, head_learning_rate=1e-3, batch_size=32, max_tokens_per_batch=4096
    )
    """Optimiser and schedule; there is no validation, the last weights are kept."""
    max_windows: int | None = Field(default=8000, ge=1)
    """Next-utterance windows an epoch, drawn anew each epoch; None takes all."""
    wrong_from_same_dialogue: float = Field(default=0.0, ge=0, le=1)
    """Share of the wrong utterances that come from the same dialogue, the others come from another one. BERT_FP has
    half of them; with little training they teach that what the context says is wrong."""
    wrong_from_other_dialogues: Literal["random", "bm25"] = "random"
    """`random`: any. `bm25`: one of the nine that resemble the true next utterance most, as the wrong candidates of
    pools do; harder, and some are right answers."""
    masked_word_weight: float = Field(default=0.0, ge=0)
    """Weight of the masked-word loss beside the next-utterance loss; 0 leaves words unmasked. BERT_FP's is 1; with
    little training the hidden words cost the next-utterance task more than they teach."""
    masked_share: float = Field(default=0.15, gt=0, lt=1)
    """Share of the tokens that are hidden, 80 % as [MASK], 10 % as another word, 10 % as they are."""
    seed: int = 0
    """Its own seed: one post-trained model serves the runs of all seeds."""


class Window(NamedTuple):
    """Utterance `place` of the context in `row` is the target, those before it are the context."""

    row: int
    place: int


class _Example(NamedTuple):
    window: Window
    other: Window | None  # where the wrong utterance comes from; None for the true next one
    length: int
    number: int


class PostTrainingCurriculum:
    """Windows over contexts; each with its true next utterance and a wrong one.

    Raises:
        SettingError: the contexts hold no window.
    """

    def __init__(
        self, store: TokenStore, rows: Sequence[int], layout: Layout, settings: PostTraining, mask_token: int,
        vocabulary: int,
    ) -> None:  # fmt: skip
        self._store, self._layout, self._settings = store, layout, settings
        self._mask_token, self._vocabulary = mask_token, vocabulary
        self._windows, self._dialogues = _windows(store, rows)
        if all(np.array_equal(self._text(window), self._text(self._windows[0])) for window in self._windows):
            raise SettingError(
                "post-training finds no dialogue windows: the contexts have one utterance each, or all the same. "
                "Switch it off with --set post_training=null, or prepare with longer contexts."
            )
        self._similar = (
            _SimilarTexts([self._text(window) for window in self._windows], self._dialogues)
            if settings.wrong_from_other_dialogues == "bm25"
            else None
        )

    def batches(self, epoch: int) -> list[list[_Example]]:
        """An epoch's batches: as many true as wrong next utterances."""
        settings = self._settings
        rng = np.random.default_rng(child_seed(settings.seed, "windows", epoch))
        size = min(settings.max_windows or len(self._windows), len(self._windows))
        chosen = rng.choice(len(self._windows), size, replace=False)
        examples: list[_Example] = []
        for number in chosen:
            window = self._windows[number]
            context = sum(map(len, self._store.pool(window.row).context[: window.place]))
            for other in (None, self._wrong(int(number), rng)):
                examples.append(_Example(window, other, context + len(self._text(other or window)), int(number)))
        batches = shuffled_batches(
            [example.length for example in examples],
            settings.training.batch_size,
            settings.training.max_tokens_per_batch,
            rng,
        )
        return [[examples[int(place)] for place in batch] for batch in batches]

    def _text(self, window: Window) -> Ids:
        return self._store.pool(window.row).context[window.place]

    def _wrong(self, number: int, rng: np.random.Generator) -> Window:
        window = self._windows[number]
        target = self._text(window)
        if window.place > 1 and rng.random() < self._settings.wrong_from_same_dialogue:
            earlier = Window(window.row, int(rng.integers(window.place - 1)))
            if not np.array_equal(self._text(earlier), target):
                return earlier
        similar = self._similar.rows(number) if self._similar is not None else []
        if len(similar):
            return self._windows[int(rng.choice(similar))]
        draws = 0
        while True:
            draws += 1
            other = int(rng.integers(len(self._windows)))
            # Where every other dialogue says the same, this one's other utterances have to do.
            elsewhere = self._dialogues[other] != self._dialogues[number] or draws > _MAX_DRAWS
            if elsewhere and not np.array_equal(self._text(self._windows[other]), target):
                return self._windows[other]

    def losses(
        self, forward: Callable[..., Any], examples: Sequence[_Example], device: torch.device
    ) -> tuple[str, Tensor]:
        """Summed next-utterance loss, plus the masked-word loss (mean over the hidden words, times the examples)."""
        layout, settings = self._layout, self._settings
        encoded = [self._encode(example) for example in examples]
        labels = torch.tensor([float(example.other is None) for example in examples], device=device)
        if settings.masked_word_weight == 0:
            losses = forward("answer", make_batch(encoded, layout, device), labels_B=labels, loss=_LOSS)
            return "next_utterance", losses.sum()
        hidden, places, words = self._hide(encoded)
        batch = make_batch(hidden, layout, device)
        losses, word_logits = forward(
            "masked_words", batch, labels_B=labels, loss=_LOSS, places_N2=torch.from_numpy(places).to(device)
        )
        word_loss = nn.functional.cross_entropy(word_logits.float(), torch.from_numpy(words).to(device))
        return "post_training", losses.sum() + settings.masked_word_weight * len(examples) * word_loss

    def _encode(self, example: _Example) -> Encoded:
        context = self._store.pool(example.window.row).context[: example.window.place]
        target = self._text(example.other or example.window)[: self._layout.budget.max_candidate_tokens]
        return self._layout.pair(self._layout.context_ids(context, None), target)

    def _hide(self, encoded: Sequence[Encoded]) -> tuple[list[Encoded], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Hide words as BERT does; drawn from torch's generator, which the loop seeds for every update."""
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        special = [self._layout.cls, self._layout.separator]
        hidden: list[Encoded] = []
        places: list[tuple[int, int]] = []
        words: list[int] = []
        for row, (ids, start) in enumerate(encoded):
            ordinary = np.flatnonzero(~np.isin(ids, special))
            chosen = np.sort(rng.choice(ordinary, max(1, round(len(ordinary) * self._settings.masked_share)), False))
            words += ids[chosen].tolist()
            places += [(row, int(place)) for place in chosen]
            hidden.append((self._replaced(ids, chosen, rng), start))
        return hidden, np.array(places, np.int64), np.array(words, np.int64)

    def _replaced(self, ids: Ids, chosen: npt.NDArray[np.int64], rng: np.random.Generator) -> Ids:
        replaced = ids.copy()
        dice = rng.random(len(chosen))
        replaced[chosen[dice < 0.8]] = self._mask_token
        other = chosen[(dice >= 0.8) & (dice < 0.9)]
        replaced[other] = rng.integers(self._vocabulary, size=len(other))
        return replaced


class _SimilarTexts:
    """BM25 among the windows' true next utterances, word pieces being the words."""

    def __init__(self, texts: Sequence[Ids], dialogues: Sequence[str]) -> None:
        self._counts, weights = bm25_matrices([text.tolist() for text in texts])
        self._weights = weights.T.tocsr()
        self._texts = np.unique([text.tobytes() for text in texts], return_inverse=True)[1]
        self._dialogues = np.unique(dialogues, return_inverse=True)[1]

    def rows(self, query: int) -> npt.NDArray[np.int64]:
        """The nearest texts to a window's, from other dialogues and not the same words; may be fewer than asked."""
        scores = (self._counts[query : query + 1] @ self._weights).tocsr()
        other = (self._dialogues[scores.indices] != self._dialogues[query]) & (
            self._texts[scores.indices] != self._texts[query]
        )
        found, values = scores.indices[other], scores.data[other]
        best = np.lexsort((found, -values))[: 4 * _NUM_SIMILAR]
        _, first = np.unique(self._texts[found[best]], return_index=True)  # the same words once
        return found[best][np.sort(first)][:_NUM_SIMILAR].astype(np.int64)


def _windows(store: TokenStore, rows: Sequence[int]) -> tuple[list[Window], list[str]]:
    """Distinct windows whose target is no candidate of a pool of the same dialogue; and their dialogues."""
    candidates: dict[str, set[bytes]] = {}
    for pool in store.pools(rows):
        candidates.setdefault(pool.dialog_id, set()).update(ids.tobytes() for ids in pool.candidates)
    seen: set[tuple[str, bytes, bytes]] = set()
    windows: list[Window] = []
    dialogues: list[str] = []
    for pool in store.pools(rows):
        answers = candidates[pool.dialog_id]
        for place in range(1, len(pool.context)):
            target, before = pool.context[place].tobytes(), pool.context[place - 1].tobytes()
            key = (pool.dialog_id, before, target)
            if not len(pool.context[place]) or target in answers or key in seen:
                continue
            seen.add(key)
            windows.append(Window(pool.row, place))
            dialogues.append(pool.dialog_id)
    return windows, dialogues
