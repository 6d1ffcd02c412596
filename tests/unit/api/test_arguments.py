"""Arguments of the Python API: Python lets any keyword into `**`, and numbers come from anywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import icalib
from icalib.api.options import RunTemplate
from icalib.core.errors import SettingError


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda pools: icalib.run("bm25", pools, labelled=0.5, limits=5), "Did you mean `limit`"),
        (lambda pools: icalib.compare(["bm25"], pools, labelled=0.5, seed=5), "unknown argument `seed`"),
        (lambda pools: icalib.curve(["bert"], pools, labelled=0.5), "unknown argument `labelled`"),
        (lambda pools: icalib.sweep("icast_tpe", pools, labelled=0.5, trial=3), "unknown argument `trial`"),
        (lambda pools: icalib.export("run", "out", distill=True), "unknown argument `distill`"),
        (lambda pools: icalib.label_next(data=pools, nummber=2), "unknown argument `nummber`"),
        (lambda pools: icalib.label_suspects("run", fold=2), "unknown argument `fold`"),
        (lambda pools: icalib.evaluate_judged("run", "a", "b", dat=pools), "unknown argument `dat`"),
        (lambda pools: icalib.compare("bert", pools, labelled=0.5), "expected a list"),
        (lambda pools: icalib.run("bm25", pools, labelled="0.5"), "`labelled` is '0.5': expected a fraction"),
        (lambda pools: icalib.run("bm25", pools, labelled=0.5, seed="a"), "seed: Input should be a valid integer"),
        (lambda pools: icalib.run("bm25", pools, labelled=0.5, settings=["a=1"]), "expected values by name"),
        (lambda pools: icalib.run("bm25", pools, labelled=0.5, track="mlflow"), "expected a list, e.g. ['mlflow']"),
        (lambda pools: icalib.run("bm25", pools, labelled=0.5, limit=2.5), "expected numbers above 0"),
        (lambda pools: icalib.run("bm25", pools, executor="local", workers=2), "found workers 2. Leave `workers` out"),
        (lambda pools: icalib.run("bert", pools, preset=["bi-encoder"]), "expected a name, e.g. 'bi-encoder'"),
        (lambda pools: icalib.compare(None, pools, labelled=0.5), "`methods` is None: expected a list"),
        (lambda pools: icalib.sweep(None, pools, labelled=0.5), "no space `None`"),
        (lambda pools: icalib.calibrate(pools, "out", columns="query=qid"), "expected names of columns"),
    ],
)
def test_what_a_function_does_not_take_is_refused(tiny_pools: Path, call: Callable[[Path], Any], said: str) -> None:
    with pytest.raises(SettingError) as error:
        call(tiny_pools)
    assert said in str(error.value)


def test_numbers_may_be_those_of_numpy(tiny_pools: Path) -> None:
    given: Any = {"limit": np.int64(20)}
    assert RunTemplate.of(given, tiny_pools).limit == {"train": 20, "validation": 20, "test": 20}
