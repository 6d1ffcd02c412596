"""What people see of a plan."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from icalib.core.run_folder import PLAN, RunFolder
from icalib.reports.plan_terminal import planned_line, print_plan

STAGES = [
    {"name": "teacher", "num_inputs": 1200.0, "updates": 40.0, "seconds": 60.0, "low": 30.0, "high": 90.0},
    {"name": "grey-answers", "num_inputs": 0, "updates": 0.0, "seconds": 0.0, "low": 0.0, "high": 0.0},
]
PLANNED = {
    "stages": STAGES,
    "stages_reused": 2,
    "seconds": {"expected": 60.0, "low": 30.0, "high": 90.0},
    "memory": 2**31,
    "machines": {"num_workers": 2, "threads": 1, "num_scorers": 2},
    "cost": {"expected": 3.0, "low": 1.5, "high": 4.5},
    "backbone": "minilm (bert, 6 layers, 384 wide)",
    "per_million_pairs": [
        {
            "passes": 1,
            "seconds": {"expected": 3600.0, "low": 1800.0, "high": 5400.0},
            "cost": {"expected": 3.0, "low": 1.5, "high": 4.5},
        },
        {"passes": 5, "seconds": {"expected": 36000.0, "low": 18000.0, "high": 5400000.0}},
    ],
}


def test_a_plan_shows_stages_memory_cost_and_what_is_not_counted() -> None:
    out = io.StringIO()
    print_plan("bert", PLANNED, Console(file=out, width=120))
    text = " ".join(out.getvalue().split())
    assert "teacher 1,200 40 1 min 0 s 30.0 s – 1 min 30 s" in text
    assert "about 2.0 GiB" in text
    assert "2 more stages are shared" in text
    assert "cost: 3.00 (1.50 to 4.50)" in text
    assert "not counted: grey-answers" in text
    assert (
        "a million pairs on minilm (bert, 6 layers, 384 wide): 1 h (0.5 to 1.5) with 1 pass, cost 3.00 (1.50 to 4.50); "
        "10 h (5 to 1,500) with 5 passes with dropout"
    ) in text


def test_a_plan_that_was_not_measured_says_so() -> None:
    out = io.StringIO()
    planned = {**PLANNED, "memory": 0, "basis": "not measured: FLOPs at 40% of a table's peak"}
    print_plan("bert", planned, Console(file=out, width=120))
    text = " ".join(out.getvalue().split())
    assert "not measured: FLOPs at 40% of a table's peak, and from early stopping" in text
    assert "30 % either way" not in text
    assert "memory isn't estimated" in text


def test_a_run_is_held_against_its_plan_where_there_was_one(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.write_json(
        "stages.json",
        [
            *(
                {"name": name, "digest": "0" * 16, "reused": False, "seconds": seconds}
                for name, seconds in (("tokens", 5.0), ("teacher", 45.0))
            )
        ],
    )
    assert planned_line(run) == ""
    run.write_json(PLAN, PLANNED)
    assert planned_line(run) == "planned: 1 min 0 s (30.0 s to 1 min 30 s) for stages that took 45.0 s"
