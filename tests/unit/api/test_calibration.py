from __future__ import annotations

from pathlib import Path

import pytest
from helpers.scored_pools import score_rows, scored_pools, write_scores
from typer.testing import CliRunner

import icalib
from icalib.cli import main  # noqa: F401  (registers the verbs)
from icalib.cli.app import app
from icalib.core.errors import SettingError
from icalib.score_files.calibrator import Calibrator

ROWS = score_rows(scored_pools(80))


def command(*words: object) -> str:
    """Run a command; return what it prints for people."""
    result = CliRunner().invoke(app, ["calibrate", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stderr


def test_commands_and_functions_give_the_same(tmp_path: Path) -> None:
    named = [{"ticket": row.pop("query"), **row} for row in map(dict, ROWS)]
    scores = write_scores(tmp_path / "scores.parquet", named)
    shown = command(scores, "--out", tmp_path / "by-command", "--columns", "query=ticket", "--seed", 3)
    found = icalib.calibrate(scores, tmp_path / "by-function", columns={"query": "ticket"}, seed=3)
    assert found.calibrator == Calibrator.load(tmp_path / "by-command") == Calibrator.load(found.path)
    assert shown.startswith(repr(found).rstrip())
    for word in ("40 queries that fitted nothing", "before", "temperature", "platt", "isotonic", "NLL ↓"):
        assert word in shown
    assert "too short" not in shown
    shown = command(scores, "--apply", tmp_path / "by-command", "--out", tmp_path / "by-command.parquet")
    applied = icalib.apply(found.path, scores, tmp_path / "by-function.parquet")
    assert (applied.num_pairs, applied.notes) == (480, ())
    assert "by-command.parquet: 480 pairs" in shown
    assert (tmp_path / "by-command.parquet").read_bytes() == applied.out.read_bytes()


def test_intervals_of_few_queries_say_that_they_are_too_short(tmp_path: Path) -> None:
    scores = write_scores(tmp_path / "scores.parquet", score_rows(scored_pools(50)))
    shown = " ".join(command(scores, "--out", tmp_path / "out").split())
    assert "25 queries that fitted nothing" in shown
    assert "of so few queries those of ECE are too short" in shown


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    scores = write_scores(tmp_path / "scores.jsonl", ROWS)
    with pytest.raises(SettingError, match="holds something else than a calibrator"):
        icalib.calibrate(scores, tmp_path)
    with pytest.raises(SettingError, match=r"`scale` is cosine. Choose one of: auto, probability, logit"):
        icalib.calibrate(scores, tmp_path / "out", scale="cosine")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="qurey"):
        icalib.calibrate(scores, tmp_path / "out", columns={"qurey": "id"})
    with pytest.raises(SettingError, match="--scale and --seed are for fitting"):
        command(scores, "--apply", tmp_path / "out", "--out", tmp_path / "out.jsonl", "--seed", 2)
    assert not (tmp_path / "out").exists()
