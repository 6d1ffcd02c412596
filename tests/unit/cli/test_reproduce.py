"""`icalib reproduce`: what is run, reused, refused and shown; runs, evaluations and timings are fakes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from unit.reports.fake_runs import write_run
from unit.reports.pages import read_page, visible

from icalib.core.errors import RunFolderError, SettingError
from icalib.core.run_folder import RunFolder
from icalib.pipeline.config import RunConfig

ROWS = [
    {"label": "TSST", "method": "tsst"},
    {"label": "GONE", "method": "gone"},
    {"label": "ICAST", "method": "icast", "settings": {"regime.rule.gain_threshold": 0.0}},
]
Call = Callable[..., tuple[int, str, Path]]


class Fakes:
    """Stands for run and evaluate; what was asked of them is kept."""

    def __init__(self, root: Path) -> None:
        self.runs, self.root = root / "runs", root / "fakes"
        self.failing, self.without_model = "", ""
        self.asked: list[tuple[str, float, int]] = []

    def run(self, settings: RunConfig, context: object, *, fresh: bool) -> RunFolder:
        """A folder of invented results."""
        method = settings.method.partition("@")[0]
        self.asked.append((settings.method, settings.labelled, settings.seed))
        if method == self.failing:
            raise SettingError("the machine is on fire.")
        return write_run(self.root / f"{len(self.asked)}", settings.data, method, settings.seed)

    def evaluate(self, run: Any, data: Path, limit: int | None, context: object) -> dict[str, Any]:
        """Metrics like those of the run's own pools."""
        if run.folder.result["method"] == self.without_model:
            raise RunFolderError("the model is gone.")
        shift = RunFolder(run.folder.shift_path(data.name))
        shift.write_table("predictions.parquet", run.folder.predictions("test"))
        shift.write_json("result.json", {"data": str(data), "test": run.folder.result["test"]})
        return shift.result


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fakes:
    made = Fakes(tmp_path)
    monkeypatch.setattr("icalib.distributed.session.start", lambda address, **_: None)
    monkeypatch.setattr("icalib.distributed.session.stop", lambda: None)
    monkeypatch.setattr("icalib.api.session.Session.context", None)
    monkeypatch.setattr("icalib.pipeline.run.run", made.run)
    monkeypatch.setattr("icalib.pipeline.finished.evaluate", made.evaluate)
    monkeypatch.setattr(
        "icalib.pipeline.finished.FinishedRun.open", lambda path: SimpleNamespace(folder=RunFolder.open(path))
    )
    return made


@pytest.fixture
def reproduce(fakes: Fakes, tiny_pools: Path, tmp_path: Path, icalib: Any) -> Call:
    """Make a table of ROWS from the tiny pools; gives the exit code, what was said, and the page's path."""

    def call(*options: object, kind: str = "metrics") -> tuple[int, str, Path]:
        path = tmp_path / "mine.yaml"
        path.write_text(yaml.safe_dump({"title": "T", "source": "S", "kind": kind, "metrics": ["F1"], "rows": ROWS}))
        code, out, err = icalib("reproduce", path, "--data", tiny_pools, "--runs", fakes.runs, *options)
        return code, out + err, fakes.runs / "default" / f"mine-{tiny_pools.resolve().name}.html"

    return call


def test_every_row_is_run_with_every_fraction_and_seed(reproduce: Call, fakes: Fakes) -> None:
    code, _, page = reproduce("--labelled", "0.05,0.1", "--seeds", 2)
    assert code == 0
    icast = "icast@regime.rule.gain_threshold=0.0"
    assert fakes.asked == [
        (method, fraction, seed) for fraction in (0.05, 0.1) for method in ("tsst", icast) for seed in (1, 2)
    ]
    assert "no method `gone`" in visible(read_page(page))


def test_a_row_that_fails_is_shown_and_the_others_continue(reproduce: Call, fakes: Fakes) -> None:
    fakes.failing = "tsst"
    code, said, page = reproduce("--labelled", 0.05, "--seeds", 2)
    assert code == 0
    assert [method.partition("@")[0] for method, _, _ in fakes.asked] == ["tsst", "icast", "icast"]
    for text in (said, visible(read_page(page))):
        assert "seed 1: the machine is on fire." in text


def test_a_row_that_fails_on_other_pools_is_shown(reproduce: Call, fakes: Fakes, tiny_pools: Path) -> None:
    fakes.without_model = "tsst"
    code, _, page = reproduce("--labelled", 0.05, "--seeds", 1, "--shift", tiny_pools, kind="shift")
    assert code == 0
    own, shifted = visible(read_page(page)).split("tested on", 1)
    assert "the model is gone." in own
    assert "the model is gone." in shifted


def test_dry_says_which_runs_are_finished(reproduce: Call, fakes: Fakes, tiny_pools: Path) -> None:
    wanted = ("--labelled", 0.05, "--seeds", 2, "--rows", "tsst", "--dry")
    name = f"tsst-{tiny_pools.resolve().name}-0.05"
    RunFolder(fakes.runs / "default" / f"{name}-s1").write_json("result.json", {})
    _, said, _ = reproduce(*wanted)
    assert f"finished  {name}-s1\nto run    {name}-s2" in said
    assert fakes.asked == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--set", "regime.num_ronds=2"], "Did you mean `regime.num_rounds`"),
        (["--preset", "lihgt"], "none of these methods has a preset `lihgt`"),
        (["--labelled", "0"], "`labelled` is 0.0"),
    ],
)
def test_options_that_fit_no_row_are_refused(reproduce: Call, fakes: Fakes, options: list[str], said: str) -> None:
    code, text, _ = reproduce(*options)
    assert code == 2
    assert said in text
    assert fakes.asked == []
