"""How far the best trial leads."""

from __future__ import annotations

from pathlib import Path

from unit.reports.fake_sweeps import Made, write_sweep

from icalib.reports.sweep_lead import lead_text
from icalib.sweeps.trials import ranked, sweep_trials

GOOD, OTHER, POOR = [1.0, 2.0, 3.0, 1.0], [1.0, 2.0, 3.0, 1.5], [-1.0, -2.0, 3.0, 1.0]


def _lead(root: Path, *trials: tuple[float, list[float]]) -> str | None:
    """What is said of trials, each an R@1 and predictions."""
    made = [
        Made({"gamma": 1.0 + number}, [{"R@1": value}], margins=margins)
        for number, (value, margins) in enumerate(trials)
    ]
    folder = write_sweep(root, made, None)
    return lead_text(ranked(sweep_trials(folder), folder.settings.metrics), folder.settings.metrics)


def test_the_best_leads_the_next(tmp_path: Path) -> None:
    text = _lead(tmp_path, (0.5, POOR), (1.0, GOOD))
    assert text is not None
    assert "Trial 1 leads trial 0" in text
    assert "+0.500" in text


def test_equal_metrics_could_be_chance_and_one_trial_leads_nothing(tmp_path: Path) -> None:
    text = _lead(tmp_path / "two", (1.0, GOOD), (1.0, OTHER))
    assert text is not None
    assert "+0.0000" in text
    assert "could be chance" in text
    assert _lead(tmp_path / "one", (1.0, GOOD)) is None
