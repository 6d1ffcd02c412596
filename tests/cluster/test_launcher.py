"""The Ray cluster launcher's files fit Ray's own schema and are closed to strangers."""

from __future__ import annotations

import importlib.util
import json
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from helpers.manifests import LAUNCHERS, NO_TELEMETRY, documents

TOKEN = "/home/icalib/.ray/auth_token"  # where Ray looks for it, in the image's home folder


def ray_schema() -> dict[str, Any]:
    spec = importlib.util.find_spec("ray")
    assert spec is not None
    assert spec.origin is not None
    return json.loads((Path(spec.origin).parent / "autoscaler" / "ray-schema.json").read_text())


def started(commands: list[str]) -> list[str]:
    """The words of the one `ray start` among the commands."""
    (command,) = [words for words in map(shlex.split, commands) if words[:2] == ["ray", "start"]]
    return command


@pytest.fixture(params=LAUNCHERS, ids=lambda path: path.stem)
def launcher(request: pytest.FixtureRequest) -> dict[str, Any]:
    (config,) = documents(request.param.read_text())
    return config


def test_it_fits_rays_schema(launcher: dict[str, Any]) -> None:
    jsonschema.validate(launcher, ray_schema())


def test_containers_want_a_token_and_send_no_telemetry(launcher: dict[str, Any]) -> None:
    options = launcher["docker"]["run_options"]
    assert {f"--env={name}={value}" for name, value in {"RAY_AUTH_MODE": "token", **NO_TELEMETRY}.items()} <= set(
        options
    )


def test_the_users_token_file_is_copied(launcher: dict[str, Any]) -> None:
    assert launcher["file_mounts"] == {TOKEN: "~/.ray/auth_token"}


def test_the_dashboard_stays_on_loopback(launcher: dict[str, Any]) -> None:
    assert "--dashboard-host=127.0.0.1" in started(launcher["head_start_ray_commands"])
    assert not any("dashboard" in word for word in started(launcher["worker_start_ray_commands"]))


def test_nothing_is_scheduled_on_the_head(launcher: dict[str, Any]) -> None:
    if launcher["provider"]["type"] == "local":
        assert {"--num-cpus=0", "--num-gpus=0", "--memory=1048576"} <= set(started(launcher["head_start_ray_commands"]))
    else:
        assert launcher["available_node_types"][launcher["head_node_type"]]["resources"] == {
            "CPU": 0,
            "GPU": 0,
            "memory": 0,
        }


def test_gpus_are_there_before_a_run_counts_them(launcher: dict[str, Any]) -> None:
    """A run asks for no more GPUs than it finds, so that Ray's autoscaler would never start machines that have them."""
    for kind in launcher.get("available_node_types", {}).values():
        assert not kind["resources"]["GPU"] or kind["min_workers"] == kind["max_workers"] > 0
