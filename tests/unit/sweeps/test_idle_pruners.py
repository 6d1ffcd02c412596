"""A pruner that can never stop a trial is told before the sweep begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.runs import small_settings
from unit.sweeps.made_spaces import made_folder, write_space

from icalib.sweeps.proposals import Proposal
from icalib.sweeps.sweep import why_nothing_is_pruned

F1, R1_AND_ECE, AURC = {"F1": "maximize"}, {"R@1": "maximize", "ECE": "minimize"}, {"AURC": "minimize"}


@pytest.mark.parametrize(
    ("method", "epochs", "changes", "reason"),
    [
        ("bert", 2, {"metrics": F1, "pruner": "asha"}, None),
        ("bert", 1, {"metrics": F1, "pruner": "asha", "seeds": 2}, None),
        ("bm25", 1, {"metrics": F1, "pruner": "asha", "seeds": 2}, None),
        ("icast", 1, {"metrics": F1, "pruner": "asha"}, None),
        ("ensemble", 1, {"metrics": F1, "pruner": "median"}, None),
        ("bert", 2, {"metrics": R1_AND_ECE, "pruner": "none"}, None),
        ("bert", 2, {"metrics": AURC, "pruner": "asha", "seeds": 3}, None),
        ("bert", 1, {"metrics": F1, "pruner": "asha"}, "no second epoch"),
        ("bm25", 1, {"metrics": F1, "pruner": "asha"}, "no second epoch"),
        ("bert", 2, {"metrics": R1_AND_ECE, "pruner": "asha"}, "one metric, and R@1, ECE are tuned"),
        ("bert", 2, {"metrics": AURC, "pruner": "asha"}, "AURC only at the end"),
    ],
)
def test_why_nothing_is_pruned(
    tmp_path: Path, tiny_bert: Path, method: str, epochs: int, changes: dict[str, Any], reason: str | None
) -> None:
    names = {"bert": "training", "ensemble": "training", "icast": "teacher"}
    epochs_of = {f"regime.{names[method]}.epochs": epochs} if method in names else {}
    settings = made_folder(tmp_path, write_space(tmp_path / "spaces"), **changes).settings
    method_of = small_settings(method, tmp_path, tiny_bert, **epochs_of).settings
    found = why_nothing_is_pruned(settings, [Proposal(0, {}, method_of)])
    assert found is None if reason is None else found is not None and reason in found
