from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from icalib.data.encoding import Ids
from icalib.training.pretraining.word_vectors import Pairs, SkipGram, SkipGramCurriculum, WordVectors

CPU = torch.device("cpu")
texts = st.lists(
    st.lists(st.integers(1, 9), min_size=2, max_size=7).map(lambda ids: np.array(ids, np.int32)), min_size=1, max_size=4
)


class Recorder:
    """Stands for the model and keeps the pairs."""

    def __init__(self) -> None:
        self.pairs: list[Pairs] = []

    def __call__(self, pairs: Pairs, num_negatives: int) -> Tensor:
        self.pairs.append(pairs)
        return torch.ones(len(pairs.words_P))


@pytest.fixture(autouse=True, scope="module")
def no_subsampling() -> Iterator[None]:
    """Texts are so short that all words are frequent."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("icalib.training.pretraining.word_vectors._SUBSAMPLING", 1.0)
        yield


def made_pairs(given_texts: list[Ids], vocabulary: int = 10, **settings: Any) -> Pairs:
    wanted = WordVectors.model_validate(settings)
    model = Recorder()
    torch.manual_seed(0)
    curriculum = SkipGramCurriculum(given_texts, wanted, vocabulary=vocabulary)
    assert curriculum.losses(model, list(range(len(given_texts))), CPU)[0] == "skip_gram"
    return model.pairs[0]


def test_the_loss_is_that_of_the_paper() -> None:
    torch.manual_seed(0)
    model = SkipGram(7, 4)
    torch.nn.init.normal_(model.neighbours.weight)
    pairs = Pairs(torch.tensor([1, 2]), torch.tensor([3, 1]), torch.tensor([5, 6, 5]))
    v, u = (
        tensor.detach().numpy().astype(float) for tensor in (model.encoder["embedding"].weight, model.neighbours.weight)
    )
    expected = [
        np.log1p(np.exp(-v[w] @ u[c])) + 4 * np.mean([np.log1p(np.exp(v[w] @ u[n])) for n in (5, 6, 5)])
        for w, c in ((1, 3), (2, 1))
    ]
    np.testing.assert_allclose(model(pairs, 4).detach().numpy(), expected, rtol=1e-5)


@given(given_texts=texts)
def test_with_a_window_of_one_neighbours_are_the_words_beside_within_a_text(given_texts: list[Ids]) -> None:
    pairs = made_pairs(given_texts, window=1)
    beside = [pair for text in given_texts for pair in pairwise(text.tolist())]
    expected = sorted([*beside, *((right, left) for left, right in beside)])
    assert sorted(zip(pairs.words_P.tolist(), pairs.neighbours_P.tolist(), strict=True)) == expected


def test_noise_follows_the_flattened_frequencies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icalib.training.pretraining.word_vectors._NOISE_WORDS", 40_000)
    text = np.repeat(np.arange(1, 4), [1, 4, 16]).astype(np.int32)
    noise = made_pairs([text]).noise_M.numpy()
    expected = np.array([1, 4, 16]) ** 0.75
    np.testing.assert_allclose(np.bincount(noise)[1:] / len(noise), expected / expected.sum(), atol=0.01)


@given(given_texts=texts)
def test_a_pair_weighs_the_same_in_any_part_of_a_batch(given_texts: list[Ids]) -> None:
    """Every pair has a loss of 1 here, and with a window of one each text always has the same pairs."""
    curriculum = SkipGramCurriculum(given_texts, WordVectors(window=1), vocabulary=10)
    numbers = range(len(given_texts))
    whole, *parts = (
        curriculum.losses(Recorder(), part, CPU)[1].item() for part in (numbers, *([number] for number in numbers))
    )
    assert whole == pytest.approx(len(given_texts))  # the mean over the pairs is 1
    pairs = np.array([2 * (len(text) - 1) for text in given_texts])
    np.testing.assert_allclose(parts, pairs / pairs.mean(), rtol=1e-5)
