"""Job files: what they may say, how it is changed from the command line, and which two are the same work."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from icalib.core.cluster_job import JobFile, read_job_file
from icalib.core.errors import SettingError

RUN: dict[str, Any] = {"verb": "run", "arguments": ["icast"], "options": {"data": "/pools", "runs": "/runs"}}


def job_file(folder: Path, **values: Any) -> Path:
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump({**RUN, **values}))
    return path


def test_changes_replace_and_add(tmp_path: Path) -> None:
    path = job_file(tmp_path, options={"data": "/pools", "set": {"regime.num_rounds": 3}})
    changes = {
        "name": "second",
        "options.data": "/other",
        "options.set.regime.rule.gain_threshold": 0.01,
        "resources.memory": "8GiB",
        "resources.custom.on_demand": 0.5,
    }
    job = read_job_file(path, changes)
    assert job.options == {"data": "/other", "set": {"regime.num_rounds": 3, "regime.rule.gain_threshold": 0.01}}
    assert (job.title, job.resources.memory, job.resources.custom) == ("second", 8 * 2**30, {"on_demand": 0.5})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"optons": {}}, "optons"),
        ({"resources": {"memory": "lots"}}, "resources.memory"),
        ({"name": "../evil"}, "name"),
        ({"environment": {"A=B": "1"}}, "environment"),
        ({"arguments": [["a"]]}, "arguments.0"),
    ],
)
def test_an_invalid_key_or_value_is_refused(tmp_path: Path, values: dict[str, Any], said: str) -> None:
    path = job_file(tmp_path, **values)
    with pytest.raises(SettingError, match=f"^{re.escape(str(path))}: .*{re.escape(said)}"):
        read_job_file(path, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, "hidden") for name in ("HF_TOKEN", "aws_secret_access_key", "PGPASSWORD", "DB_PASS", "REDIS_AUTH")),
        *((name, "hidden") for name in ("AZURE_STORAGE_CONNECTION_STRING", "GITHUB_PAT", "SLACK_WEBHOOK_URL")),
        ("DATABASE_URL", "postgres://me:hidden@host/db"),
    ],
)
def test_secrets_are_refused_and_not_repeated(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(SettingError, match=f"pass_environment: .*{name}") as error:
        read_job_file(job_file(tmp_path, environment={name: value}), {})
    assert "hidden" not in str(error.value)


def test_what_only_sounds_like_a_secret_is_taken_and_numbers_are_text(tmp_path: Path) -> None:
    taken = {"TOKENIZERS_PARALLELISM": "1", "RAY_AUTH_TOKEN_PATH": "x", "KEYBOARD": "de", "URL": "postgres://host/db"}
    job = read_job_file(job_file(tmp_path, environment={**taken, "WORKERS": 4}), {})
    assert job.environment == {**taken, "WORKERS": "4"}


def test_a_change_within_a_value_that_is_not_a_mapping_is_refused_instead_of_replacing_it(tmp_path: Path) -> None:
    path = job_file(tmp_path, options={"set": ["regime.num_rounds=3", "seed=1"]})
    with pytest.raises(SettingError, match=r"`set` is set to \['regime.*`options\.set\.regime\.x` can't be set"):
        read_job_file(path, {"options.set.regime.x": 1})


def test_the_same_work_is_known_by_what_it_computes() -> None:
    job = JobFile(**RUN)
    same = {"name": "other", "resources": {"num_cpus": 2}, "environment": {"A": "1"}, "pass_environment": ["B"]}
    assert JobFile(**RUN, **same).work == job.work
    turned = {**RUN, "options": dict(reversed(RUN["options"].items()))}
    assert JobFile(**turned).work == job.work
    for changed in ({"verb": "compare"}, {"arguments": ["tsst"]}, {"options": {**RUN["options"], "seed": 2}}):
        assert JobFile(**{**RUN, **changed}).work != job.work
