from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.tiny_models import BUDGET

from icalib.data.encoding import Layout, TokenStore
from icalib.encoders.transformer import Batch
from icalib.models.ranker import Ranker
from icalib.training.domain_pretraining.curriculum import (
    DomainPretrainingCurriculum,
    MaskedInputs,
    Vocabulary,
    mask_tokens,
)
from icalib.training.domain_pretraining.task import WindowTask
from icalib.training.domain_pretraining.utterance_relevance import UtteranceRelevance

CPU = torch.device("cpu")


def curriculum(config: WindowTask.Config, ranker: Ranker, store: TokenStore) -> DomainPretrainingCurriculum:
    return DomainPretrainingCurriculum(config, ranker, store, range(len(store)))


def test_the_loss_adds_masked_words_by_weight(store: TokenStore, ranker: Ranker) -> None:
    batch = curriculum(UtteranceRelevance.Config(), ranker, store).batches(0)[0]
    summed = {}
    with torch.inference_mode():
        for weight in (0.0, 0.1, 0.2):
            torch.manual_seed(1)
            made = curriculum(UtteranceRelevance.Config(masked_word_weight=weight), ranker, store)
            summed[weight] = made.losses(ranker, batch, CPU)[1].item()
    word_part = summed[0.2] - summed[0.1]
    assert word_part / (0.1 * len(batch)) == pytest.approx(np.log(ranker.encoder.vocabulary), rel=0.2)
    # at the start each class of the question has about the same probability
    assert summed[0.0] / len(batch) == pytest.approx(np.log(3), rel=0.2)


def test_a_masked_token_weighs_the_same_in_any_part_of_a_batch(
    store: TokenStore, ranker: Ranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here all tokens are masked, and those of an example have the same loss, which grows with its length."""
    monkeypatch.setattr("icalib.training.domain_pretraining.curriculum._MASKED_FRACTION", 1.0)

    def forward(_: str, batch: Batch, head: str, positions_N2: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        lengths_B = batch.lengths_B.float()
        logits_NV = torch.zeros(len(positions_N2), ranker.encoder.vocabulary)
        logits_NV[:, 0] = lengths_B[positions_N2[:, 0]]  # no text has token 0, the padding
        return torch.zeros(len(lengths_B), 3), logits_NV

    made = curriculum(UtteranceRelevance.Config(), ranker, store)
    examples = [example for batch in made.batches(0) for example in batch]
    assert len({example.length for example in examples}) > 2
    whole, *parts = (made.losses(forward, part, CPU)[1].item() for part in (examples, *([one] for one in examples)))
    assert whole == pytest.approx(sum(parts), rel=1e-4)
    assert parts == pytest.approx(
        [np.log(3) + np.logaddexp(one.length, np.log(ranker.encoder.vocabulary - 1)) for one in examples], rel=0.01
    )


CLS, SEP, MASK = 2, 3, 4
LAYOUT = Layout(CLS, SEP, 0, 1, 900, 128, BUDGET, turn_separators=True)


def inputs(number: int) -> list[tuple[np.ndarray, int]]:
    rng = np.random.default_rng(1)
    context = [[rng.integers(5, 600, 8).astype(np.int32) for _ in range(4)] for _ in range(number)]
    return [LAYOUT.pair(LAYOUT.context_ids(turns[:3], None), turns[3]) for turns in context]


def masked(encoded: list[tuple[np.ndarray, int]], fraction: float, seed: int = 0) -> MaskedInputs:
    return mask_tokens(encoded, fraction, LAYOUT, Vocabulary(MASK, 600), np.random.default_rng(seed))


def test_words_are_hidden_at_the_share_and_separators_never() -> None:
    encoded = inputs(200)
    made = masked(encoded, 0.3)
    positions = [tuple(position) for position in made.positions_N2.tolist()]
    assert len(positions) == len(set(positions)) == 200 * round(0.3 * 32)
    before = np.array([encoded[row][0][position] for row, position in positions])
    after = np.array([made.encoded[row][0][position] for row, position in positions])
    assert made.tokens_N.tolist() == before.tolist()
    assert not np.isin(before, [CLS, SEP]).any()
    assert np.mean(after == MASK) == pytest.approx(0.8, abs=0.03)
    assert np.mean(after == before) == pytest.approx(0.1, abs=0.03)
    touched = set(positions)
    for row, ((old, start), (new, new_start)) in enumerate(zip(encoded, made.encoded, strict=True)):
        assert start == new_start
        assert all((row, position) in touched for position in np.flatnonzero(old != new).tolist())
    again, other = (masked(encoded, 0.3, seed).positions_N2.tolist() for seed in (0, 1))
    assert made.positions_N2.tolist() == again != other
    assert len(masked(encoded[:5], 0.001).positions_N2) == 5  # at least one word is hidden in each
