"""Ensembles from their members' scores."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import torch
from unit.regimes.made_scores import score_table

from icalib.inference.moments import sample_moments
from icalib.scoring.scores import SCORE_SCHEMA, average_members

RNG = np.random.default_rng(0)
PASSES = RNG.normal(0, 2, (3, 4, 6))  # members, passes, pairs


def member_table(passes: np.ndarray) -> pa.Table:
    found = sample_moments(torch.from_numpy(passes))
    table = score_table([[(0.5, 0.1)] * 3] * 2)
    for name in ("prob_mean", "prob_var", "logit_mean", "logit_var", "mutual_information"):
        place = SCORE_SCHEMA.get_field_index(name)
        table = table.set_column(place, SCORE_SCHEMA.field(name), pa.array(getattr(found, name).numpy()))
    count = SCORE_SCHEMA.get_field_index("num_passes")
    return table.set_column(count, SCORE_SCHEMA.field(count), pa.array([len(passes)] * 6, pa.int32()))


def test_an_ensemble_has_the_moments_of_all_its_members_passes() -> None:
    merged = average_members([member_table(passes) for passes in PASSES])
    expected = member_table(PASSES.reshape(12, 6))
    assert merged.schema == expected.schema
    for name in merged.column_names:
        if merged.schema.field(name).type == pa.float64():
            np.testing.assert_allclose(merged[name].to_numpy(), expected[name].to_numpy(), rtol=1e-9, atol=1e-12)
        else:
            assert merged[name].to_pylist() == expected[name].to_pylist()


def test_limit_an_ensemble_of_copies_is_the_member() -> None:
    member = member_table(PASSES[0])
    assert average_members([member]) == member
    copies = average_members([member] * 3)
    for name in ("prob_mean", "prob_var", "logit_mean", "logit_var", "mutual_information"):
        np.testing.assert_allclose(copies[name].to_numpy(), member[name].to_numpy(), rtol=1e-12, atol=1e-12)
