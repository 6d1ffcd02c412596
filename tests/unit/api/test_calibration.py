from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers.scored_pools import scored_pools, write_pairs, write_run
from typer.testing import CliRunner

import icalib
from icalib.cli import main  # noqa: F401  (registers the verbs)
from icalib.cli.app import app
from icalib.core.errors import DataError, SettingError
from icalib.core.temporary import temporary_beside

POOLS = scored_pools(80)


def command(*words: object) -> str:
    """Run a command; return what it prints for people."""
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stderr


def test_scores_are_calibrated_and_applied_by_commands(tmp_path: Path) -> None:
    scores, out = write_pairs(tmp_path / "scores.parquet", POOLS), tmp_path / "calibrator"
    shown = command("calibrate", scores, "--out", out, "--precision", "0.6")
    assert "columns: pool=query_id, candidate=doc_id, score=rerank_score, label=relevant" in shown
    assert "40 pools that fitted nothing (40 others fitted and chose)" in shown
    for text in ("before", "temperature", "platt", "isotonic", "pool-features", "NLL ↓", "R@1 ↑"):
        assert text in shown
    assert {path.name for path in out.iterdir()} == {"calibrator.json", "report.html", "report.json"}
    report = json.loads((out / "report.json").read_text())
    assert set(report["calibrators"]) == {"none", "temperature", "platt", "isotonic", "pool-features"}
    page = (out / "report.html").read_text()
    assert "Reliability" in page
    assert "<script src=" not in page
    applied = command("apply", out, scores, "--out", tmp_path / "calibrated.parquet")
    assert "calibrated.parquet: 480 pairs" in applied
    assert pq.read_table(tmp_path / "calibrated.parquet")["calibrated_prob"].null_count == 0


def test_progress_is_shown_as_the_command_line_asks(tmp_path: Path) -> None:
    scores = write_pairs(tmp_path / "scores.parquet", POOLS)
    shown = command("calibrate", scores, "--out", tmp_path / "calibrator", "--log-format", "json")
    (line,) = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
    assert "columns: pool=query_id" in line["text"]
    shown = command("apply", tmp_path / "calibrator", scores, "--out", tmp_path / "out.parquet", "--log-format", "json")
    assert any(line.startswith("{") for line in shown.splitlines())


def test_a_run_is_calibrated_by_functions(tmp_path: Path) -> None:
    run, qrels = write_run(tmp_path, POOLS)
    found = icalib.calibrate(run, tmp_path / "calibrator", qrels=qrels, seed=3)
    assert found.calibrator.method in repr(found)
    applied = icalib.apply(found.path, run, tmp_path / "out.jsonl", sets=False)
    assert applied.num_pairs == 480
    again = icalib.calibrate(run, tmp_path / "calibrator", qrels=qrels, seed=3)
    assert again.calibrator == found.calibrator


def test_a_folder_in_which_a_calibrator_was_being_written_is_taken(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    temporary_beside(tmp_path / "out/calibrator.json").write_text("{")
    icalib.calibrate(write_pairs(tmp_path / "scores.parquet", POOLS), tmp_path / "out", precision=0.6)
    assert (tmp_path / "out/calibrator.json").is_file()


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    scores = write_pairs(tmp_path / "scores.parquet", POOLS)
    with pytest.raises(SettingError, match="neither a score file nor --endpoint"):
        icalib.calibrate(None, tmp_path / "out")
    with pytest.raises(SettingError, match="both a score file and --endpoint"):
        icalib.calibrate(scores, tmp_path / "out", endpoint="http://localhost/rerank")
    with pytest.raises(SettingError, match="--data is missing"):
        icalib.calibrate(None, tmp_path / "out", endpoint="http://localhost/rerank")
    with pytest.raises(SettingError, match="precision"):
        icalib.calibrate(scores, tmp_path / "out", precision=1.5)
    with pytest.raises(SettingError, match="holds something else than a calibrator"):
        icalib.calibrate(scores, tmp_path)
    with pytest.raises(DataError, match="choose the scale logit"):
        icalib.calibrate(scores, tmp_path / "out", scale="probability")
    assert not (tmp_path / "out").exists()
