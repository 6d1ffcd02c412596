"""Validation of the intent head, beside that of answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from icalib.data.encoding import Encoded, TokenStore
from icalib.encoders.forward_batches import forward_batches
from icalib.metrics.classification import label_counts, micro_macro_f1
from icalib.models.precision import autocast, resolve_precision
from icalib.models.ranker import Ranker, make_batch
from icalib.training.loop import EarlyStoppingData
from icalib.training.settings import TrainingSettings

_MAX_UTTERANCES = 500  # a standard error of about 0.02
MICRO, MACRO = "class/intents_micro_F1", "class/intents_macro_F1"
"""Tags of the F1 of intents: of all decisions together, and the mean over intents."""


class ValidationWithIntents:
    """Adds F1 of the intents to validation metrics of answers; weights are still chosen by the answers' metric.

    An utterance's intents are predicted given the gold intents of those before it, as in training, and those above
    probability ½ count as predicted. At most 500 utterances are used, spread evenly over the pools.
    """

    def __init__(
        self,
        answers: EarlyStoppingData,
        store: TokenStore,
        rows: Sequence[int],
        settings: TrainingSettings,
        device: torch.device,
    ) -> None:
        self._answers, self._store, self._device = answers, store, device
        self._precision: Any = resolve_precision(settings.precision, device)
        self._max_tokens = settings.max_tokens_per_batch
        found = [
            (pool.row, utterance)
            for pool in store.pools(rows)
            for utterance, intents in enumerate(pool.intents)
            if len(intents)
        ]
        self._utterances = found[:: -(-len(found) // _MAX_UTTERANCES)] if found else []

    def __call__(self, ranker: Ranker, rank: int, world_size: int) -> tuple[Any, npt.NDArray[np.float64]]:
        """Return the results of answers, and per intent the true positives, predicted and gold ones [3, K]."""
        return self._answers(ranker, rank, world_size), self._counts(ranker, self._utterances[rank::world_size])

    def metrics(self, results: Sequence[tuple[Any, npt.NDArray[np.float64]]]) -> dict[str, float]:
        """Compute the answers' metrics, and micro and macro F1 of intents, the latter over those that occur."""
        metrics = self._answers.metrics([answers for answers, _ in results])
        counts_3K = np.sum([counts for _, counts in results], axis=0)
        if not counts_3K.any():
            return metrics
        return {**metrics, **dict(zip((MICRO, MACRO), micro_macro_f1(counts_3K), strict=True))}

    def _counts(self, ranker: Ranker, utterances: Sequence[tuple[int, int]]) -> npt.NDArray[np.float64]:
        layout, questions = ranker.layout, list[Encoded]()
        gold_NK = np.zeros((len(utterances), len(ranker.config.intents)), np.bool_)
        for number, (row, utterance) in enumerate(utterances):
            pool = self._store.pool(row)
            questions.append(layout.intent_question(pool.context, pool.intents, utterance))
            gold_NK[number, list(pool.intents[utterance])] = True
        predicted_NK = np.zeros_like(gold_NK)
        with torch.inference_mode(), autocast(self._device, self._precision):
            for batch in forward_batches([len(ids) for ids, _ in questions], self._max_tokens, self._device):
                inputs = make_batch([questions[int(index)] for index in batch], layout, self._device)
                predicted_NK[batch] = (ranker.intent_logits(inputs) > 0).cpu().numpy()
        return label_counts(predicted_NK, gold_NK)
