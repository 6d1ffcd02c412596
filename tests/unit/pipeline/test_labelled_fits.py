"""What depends only on a run and on what is asked for is computed once, however many questions are answered."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.metrics.made_predictions import simulated_table

from icalib.calibration.by_count import fit_for_count
from icalib.core.errors import DataError
from icalib.core.run_folder import RunFolder
from icalib.metrics.conformal import answer_sets, fit_conformal
from icalib.metrics.exchangeability import shift_test
from icalib.metrics.pairs import PoolScores
from icalib.pipeline import labelled_fits
from icalib.pipeline.labelled_fits import LabelledFits

FITS = (
    "fit_for_count",
    "fit_conformal",
    "fit_adaptive",
    "fit_slope",
    "pools_for_sets",
    "selective_risk",
    "tested_and_others",
)


def scores(num_pools: int, seed: int, num_candidates: int = 10) -> PoolScores:
    return PoolScores.from_predictions(simulated_table(num_pools, seed=seed, num_candidates=num_candidates))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    folder.write_table("predictions/validation.parquet", simulated_table(60, seed=1))
    folder.write_table("predictions/test.parquet", simulated_table(80, seed=2))
    return folder


def test_fits_are_computed_once(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()

    def counted(name: str) -> Any:
        original = getattr(labelled_fits, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            calls[name] += 1
            return original(*arguments, **keywords)

        return call

    for name in (*FITS, "control_risk"):
        monkeypatch.setattr(labelled_fits, name, counted(name))
    fits = LabelledFits(folder, seed=1)
    for seed in range(5):
        usual, unusual = scores(1, seed), scores(1, seed, num_candidates=4)
        for asked in (usual, unusual):
            fits.calibrated(asked)
            fits.sets(asked, 0.9)
            fits.compared(asked)
        fits.selective(0.8)
        fits.promise(0.8, 0.9)
        with pytest.raises(DataError, match="Allow more errors"):
            fits.promise(0.01, 0.99)
    assert calls == {**dict.fromkeys(FITS, 1), "control_risk": 2}


def test_a_question_has_the_same_set_alone_and_among_others(folder: RunFolder) -> None:
    fits, asked = LabelledFits(folder, seed=1), scores(30, 5, num_candidates=4)
    together = asked.split(fits.sets(asked, 0.7))
    alone = [fits.sets(asked.subset(np.arange(30) == b), 0.7) for b in range(30)]
    assert [one.tolist() for one in together] == [one.tolist() for one in alone]
    assert len({int(one.sum()) for one in alone}) > 1


def test_they_are_those_of_the_run(folder: RunFolder) -> None:
    fits, asked, few = LabelledFits(folder, seed=1), scores(30, 3), scores(30, 4, num_candidates=4)
    assert (fits.validation.num_pools, fits.tested.num_pools, fits.split) == (60, 80, "test")
    assert fits.sets(asked, 0.9).tolist() == answer_sets(asked, fit_conformal(fits.tested, 0.9)).tolist()
    assert fits.compared(asked) == shift_test(asked, fits.tested)
    assert fits.calibrated(asked).prob.tolist() == asked.prob.tolist()
    assert fits.calibrated(few).prob.tolist() == fit_for_count(fits.validation, 4).apply(few.logit).tolist()
    assert fits.compared(few) is None
    assert (fits.num_unusual(asked), fits.num_unusual(few)) == (0, 30)
    assert np.all(fits.covered(asked))
    assert not np.any(fits.covered(few))
