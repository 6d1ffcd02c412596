from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from unit.metrics.made_predictions import prediction_table, simulated_table

from icalib.core.run_folder import RunFolder
from icalib.metrics.conformal import answer_sets, fit_conformal
from icalib.metrics.pairs import PoolScores
from icalib.pipeline.guarantees import pools_for_sets


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    folder.write_table("predictions/validation.parquet", simulated_table(12, seed=1))
    return folder


def test_sets_are_fitted_on_pools_that_chose_nothing(run: RunFolder) -> None:
    run.write_table("predictions/test.parquet", simulated_table(20, seed=2))
    pools, split = pools_for_sets(run)
    assert (pools.num_pools, split) == (20, "test")


def test_without_labelled_test_pools_sets_are_fitted_on_validation(run: RunFolder) -> None:
    assert pools_for_sets(run)[1] == "validation"
    table = simulated_table(20, seed=2)
    unknown = pa.array(np.full(table.num_rows, -1), table.schema.field("label").type)
    run.write_table(
        "predictions/test.parquet", table.set_column(table.schema.get_field_index("label"), "label", unknown)
    )
    pools, split = pools_for_sets(run)
    assert (pools.num_pools, split) == (12, "validation")


def test_pools_that_chose_the_model_have_sets_that_are_too_small() -> None:
    """The model that suits 40 validation pools best, of 8 that are equally good on others."""

    def scores(num_pools: int, seed: int) -> PoolScores:
        rng = np.random.default_rng(seed)
        logit = rng.normal(0, 1, (num_pools, 10))
        logit[:, 0] += 1.5
        return PoolScores.from_predictions(prediction_table(logit.tolist(), [[1] + [0] * 9] * num_pools))

    covered: dict[str, list[float]] = {"validation": [], "test": []}
    for trial in range(60):
        candidates = [scores(40, 1000 * trial + number) for number in range(8)]
        chosen = min(candidates, key=lambda found: fit_conformal(found, 0.9).nonconformity)
        later = scores(200, 1000 * trial + 999)
        for split, pools in (("validation", chosen), ("test", scores(40, 1000 * trial + 500))):
            sets = answer_sets(later, fit_conformal(pools, 0.9))
            covered[split].append(float((later.pool_sum(sets & (later.label == 1)) > 0).mean()))
    assert np.mean(covered["validation"]) < 0.88
    assert np.mean(covered["test"]) == pytest.approx(0.905, abs=0.02)
