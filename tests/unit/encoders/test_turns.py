from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icalib.data.encoding import Budget, Layout
from icalib.encoders.turns import turn_numbers
from icalib.models.ranker import make_batch

CLS, SEP, PAD = 101, 102, 0
utterances = st.lists(
    st.lists(st.integers(1, 99), max_size=4).map(lambda numbers: np.array(numbers, np.int32)), min_size=1, max_size=5
)


@given(
    pairs=st.lists(st.tuples(utterances, st.lists(st.integers(1, 99), min_size=1, max_size=4)), min_size=1, max_size=4),
    separators=st.integers(1, 2),
)
@settings(max_examples=40)
def test_turns_of_words_do_not_depend_on_their_neighbours(
    pairs: list[tuple[list[np.ndarray], list[int]]], separators: int
) -> None:
    layout = Layout(CLS, SEP, PAD, separators, 1000, 128, Budget(max_candidate_tokens=8), turn_separators=True)
    encoded = [layout.pair(layout.context_ids(c, None), np.array(r, np.int32)) for c, r in pairs]
    batch = make_batch(encoded, layout, torch.device("cpu"))
    numbers_BL, num_turns_B = turn_numbers(batch, SEP)
    for (context, candidate), ids, numbers, num_turns in zip(
        pairs, batch.ids_BL, numbers_BL, num_turns_B.tolist(), strict=True
    ):
        spoken = [utterance.tolist() for utterance in context if len(utterance)]
        assert num_turns == len(spoken)
        turns = [ids[numbers == number].tolist() for number in range(num_turns + 1)]
        assert turns == [*spoken, candidate]
        assert set(ids[numbers == -1].tolist()) <= {CLS, SEP, PAD}
