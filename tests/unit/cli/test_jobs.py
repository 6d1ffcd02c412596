"""What a job's command is, and what is refused before a cluster hears of it."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from icalib.api.settings import parsed_settings
from icalib.cli.cluster import command_words
from icalib.core.cluster_job import ClusterJob, JobFile, read_job_file
from icalib.core.errors import SettingError

SHIPPED = sorted((Path(__file__).parents[3] / "jobs").glob("*.yaml"))
FILE = Path("job.yaml")
HERE = {"data": "/pools", "runs": "/runs"}


def words(verb: str, arguments: list[str], **options: Any) -> list[str]:
    return command_words(JobFile(verb=verb, arguments=arguments, options=options), FILE)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_a_shipped_job_is_what_its_verb_takes(path: Path) -> None:
    job = read_job_file(path, {})
    assert command_words(job, path)[0] == job.verb
    assert path.read_text().startswith("# ")
    assert f"icalib submit jobs/{path.name}" in path.read_text()


def test_options_are_those_of_the_command_line() -> None:
    found = words(
        "compare", ["bert", "icast"], **HERE, seeds=2, fresh=True, json=False, shift=["/pools/a", "/pools/b"],
        set={"regime.num_rounds": 2, "encoder.budget": {"max_context_tokens": 60}, "calibration": "platt"},
    )  # fmt: skip
    assert found == [
        "compare", "bert", "icast", "--data", "/pools", "--runs", "/runs", "--seeds", "2", "--fresh",
        "--shift", "/pools/a", "--shift", "/pools/b", "--set", "regime.num_rounds=2",
        "--set", 'encoder.budget={"max_context_tokens": 60}', "--set", 'calibration="platt"',
    ]  # fmt: skip


@pytest.mark.parametrize("value", [2, 0.01, 1e-5, True, None, "platt", "0.1", "true", "", [1, 2], {"scope": "ffn"}])
def test_a_setting_arrives_as_it_was(value: Any) -> None:
    *_, option, setting = words("run", ["my_lab.idea7"], **HERE, set={"regime.x": value})
    assert option == "--set"
    (arrived,) = parsed_settings([setting]).values()
    # YAML reads 1e-5 as text, wherever it stands; the settings take it for the number it is
    assert (float(arrived) if isinstance(value, float) else arrived) == value


@pytest.mark.parametrize(
    ("verb", "arguments", "options", "said"),
    [
        ("rn", ["icast"], HERE, "`verb: rn` can't be a job. There are: "),
        ("run", ["icast"], {**HERE, "sedes": 1}, "No such option: --sedes"),
        ("run", ["icast"], {**HERE, "address": "auto"}, "`options.address` isn't for jobs"),
        ("run", ["icast", "--fresh"], HERE, "looks like an option"),
        ("run", ["icast"], {"data": "pools/mine", "runs": "/runs"}, "`options.data` is the relative path pools/mine"),
        ("run", ["icast"], {"data": "/pools"}, "`options.runs` is the relative path runs"),
        ("compare", ["icast"], {**HERE, "shift": ["/a", "b"]}, "`options.shift` is the relative path b"),
        ("run", ["icast"], {**HERE, "limit": ["train=9", "test=9"]}, "`options.limit` has 2 values, and takes one"),
        ("run", ["icats"], HERE, "no method `icats`. Did you mean `icast`"),
        ("run", ["icast"], {**HERE, "set": {"regime.num_round": 2}}, "num_round"),
        ("run", ["icast"], {**HERE, "preset": "papr"}, "has no preset `papr`"),
        ("run", ["icast@regime.num_round=2"], HERE, "num_round"),
        ("compare", ["bert", "icats"], HERE, "no method `icats`"),
        ("compare", ["bert", "icast"], {**HERE, "set": {"regime.num_round": 2}}, "Did you mean `regime.num_rounds`?"),
        ("curve", ["bert"], {**HERE, "preset": "papr"}, "none of these methods has a preset `papr`"),
        ("sweep", ["icast_tpe"], {**HERE, "method": "icats"}, "no method `icats`"),
    ],
)
def test_invalid_jobs_are_refused(verb: str, arguments: list[str], options: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=f"^job.yaml: .*{re.escape(said)}"):
        words(verb, arguments, **options)


def test_what_a_project_defines_is_left_to_the_job() -> None:
    assert words("run", ["my_lab.methods.idea7"], **HERE, set={"my.own": 1})[:2] == ["run", "my_lab.methods.idea7"]
    assert words("run", ["icast"], **HERE, set={"head": "my_lab.heads.Mine"})[:2] == ["run", "icast"]
    assert words("run", ["icast"], **HERE, set={"head": {"target": "my_lab.heads.Mine"}})[:2] == ["run", "icast"]
    assert words("compare", ["icast@head=my_lab.heads.Mine"], **HERE)[0] == "compare"
    assert words("run", ["/runs/x/config.yaml"], runs="/runs")[:2] == ["run", "/runs/x/config.yaml"]
    assert words("compare", ["external:/models/reranker", "bert"], **HERE)[0] == "compare"


def test_what_jobs_print_can_not_control_the_terminal(monkeypatch: pytest.MonkeyPatch, icalib: Any) -> None:
    evil = "\x1b]0;owned\x07[red]x[/red]"
    job = ClusterJob(evil, evil, "", "running", 0.0, None, "", None)
    server = SimpleNamespace(jobs=lambda: [job], logs=lambda job_id: evil, address="http://127.0.0.1:8265")
    monkeypatch.setattr("icalib.cli.cluster._server", lambda address: server)
    code, _, err = icalib("jobs")
    assert (code, "\x1b]" in err, "[red]" in err) == (0, False, True)
    assert icalib("jobs", "logs", "x")[1] == evil  # a file or program gets it as it is
    monkeypatch.setattr("icalib.cli.cluster.sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    assert "\x1b" not in icalib("jobs", "logs", "x")[1]
