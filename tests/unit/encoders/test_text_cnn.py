from __future__ import annotations

import pytest
import torch

from icalib.encoders.iart import WIDTHS, TextCNN


@pytest.fixture
def network() -> TextCNN:
    torch.manual_seed(0)
    return TextCNN(20, 6, num_filters=4, num_classes=3).eval()


def test_features_are_the_filters_maxima_over_the_words(network: TextCNN) -> None:
    ids = torch.tensor([7, 3, 9, 1])
    words = network.embedding(ids)
    features = []
    for span, convolve in zip(WIDTHS, network.filters, strict=True):
        beside = torch.zeros(span - 1, 6)
        padded = torch.cat([beside, words, beside])
        places = [padded[start : start + span] for start in range(len(ids) + span - 1)]
        responses = [(convolve.weight * window.T).sum((1, 2)) + convolve.bias for window in places]
        features.append(torch.stack(responses).relu().amax(0))
    expected = network.output(torch.cat(features))
    torch.testing.assert_close(network(ids[None], torch.ones(1, 4, dtype=torch.bool))[0], expected)


def test_padding_and_other_texts_change_nothing(network: TextCNN) -> None:
    texts = [[5, 6], [], [1, 2, 3, 4, 5, 6, 7]]
    mask = torch.tensor([[place < len(text) for place in range(9)] for text in texts])
    together = network(torch.tensor([text + [19] * (9 - len(text)) for text in texts]), mask)
    for text, logits in zip(texts, together, strict=True):
        if text:
            alone = network(torch.tensor([text]), torch.ones(1, len(text), dtype=torch.bool))
            torch.testing.assert_close(alone[0], logits)
    torch.testing.assert_close(together[1], network.output.bias)  # a text without words
