"""SkyPilot's task: the keys that SkyPilot knows, scripts that bash can read, a command of ours."""

from __future__ import annotations

import shlex
import subprocess
from typing import Any

import pytest
import typer.main
from helpers.manifests import CLUSTER, NO_TELEMETRY, documents

from icalib.cli.app import app
from icalib.methods.catalogue import method_names

KEYS = {"name", "num_nodes", "resources", "workdir", "file_mounts", "envs", "setup", "run"}
"""Keys of SkyPilot 0.14's task schema that the file uses; it refuses others."""


@pytest.fixture
def task() -> dict[str, Any]:
    (found,) = documents((CLUSTER / "skypilot.yaml").read_text())
    return found


def test_skypilot_knows_each_key(task: dict[str, Any]) -> None:
    assert task.keys() == KEYS
    assert task["resources"].keys() == {"accelerators", "use_spot"}


def test_nodes_want_the_users_token_and_send_no_telemetry(task: dict[str, Any]) -> None:
    assert task["envs"] == {"RAY_AUTH_MODE": "token", **NO_TELEMETRY}
    assert task["file_mounts"] == {"~/.ray/auth_token": "~/.ray/auth_token"}


def test_its_scripts_are_bash_and_end_in_a_command_of_ours_on_a_bucket(task: dict[str, Any]) -> None:
    for script in (task["setup"], task["run"]):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    (line,) = [line for line in task["run"].splitlines() if line.strip().startswith("icalib ")]
    _, verb, *arguments = shlex.split(line)
    given_words = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    assert all(given_words[option].startswith("s3://") for option in ("--data", "--runs"))
    given = typer.main.get_command(app).commands[verb].make_context(verb, arguments).params
    assert given["method"] in method_names()
    assert given["labelled"]  # pools need not have a fraction of their own
