from __future__ import annotations

import numpy as np
import pytest
import torch

from icalib.encoders.transfer import forward_batches

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([60, 12, 15, 11, 14, 13, 16, 12, 15, 14], [9, 1]),  # a context and its candidates
        ([60, 59, 61, 62], [4]),
        ([60, 12], [2]),  # a batch more takes longer than the padding
        ([7], [1]),
    ],
)
def test_texts_of_a_question_are_two_batches_where_one_has_much_padding(
    lengths: list[int], expected: list[int]
) -> None:
    batches = forward_batches(lengths, 8192, CPU)
    assert [len(batch) for batch in batches] == expected
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    assert np.array(lengths)[np.concatenate(batches)].tolist() == sorted(lengths)


def test_no_texts_are_no_batch_and_many_are_cut_by_their_tokens() -> None:
    assert forward_batches([], 8192, CPU) == []
    batches = forward_batches([100] * 25, 8192, CPU)
    assert [len(batch) for batch in batches] == [10, 10, 5]
