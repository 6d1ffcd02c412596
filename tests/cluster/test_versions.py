"""Image, manifests, constraints.txt and pyproject.toml name the same versions; no file holds a secret."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.manifests import CLUSTER, KUBERAY, LAUNCHERS, PROJECT, ROOT, pin, secrets

DOCKERFILE = (CLUSTER / "Dockerfile").read_text()
FILES = sorted(path for path in CLUSTER.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def test_no_other_version_stands_in_the_image() -> None:
    tag = f"icalib:{PROJECT['version']}-ray{pin('ray')}"
    assert tag in DOCKERFILE  # in the comment that says how to build it
    assert not re.search(r"\d+\.\d+\.\d+", DOCKERFILE.replace(tag, "").replace("127.0.0.1", ""))


@pytest.mark.parametrize("path", [*LAUNCHERS, *KUBERAY], ids=lambda path: path.stem)
def test_every_manifest_runs_the_image_of_this_version(path: Path) -> None:
    images = re.findall(r"image: (?:&\w+ )?([^*\s]\S*)", path.read_text())
    expected = [f"registry.example.org/icalib:{PROJECT['version']}-ray{pin('ray')}"]
    assert sorted(set(images)) == ([] if path.stem == "namespace" else expected)


def test_the_image_gets_only_what_it_copies() -> None:
    lines = (CLUSTER / "Dockerfile.dockerignore").read_text().splitlines()
    ignored, *allowed = [line for line in lines if line and not line.startswith("#")]
    copied = {
        name for words in re.findall(r"^COPY (.+) \S+$", DOCKERFILE, flags=re.MULTILINE) for name in words.split()
    }
    assert ignored == "*"
    assert {line.removeprefix("!") for line in allowed if line.startswith("!")} == copied
    assert all((ROOT / name).exists() for name in copied)


def test_the_container_is_no_root_and_wants_a_token() -> None:
    assert re.findall(r"^USER (\S+)$", DOCKERFILE, flags=re.MULTILINE) == ["icalib"]
    assert "RAY_AUTH_MODE=token" in DOCKERFILE
    assert "RAY_USAGE_STATS_ENABLED=0" in DOCKERFILE


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CLUSTER)))
def test_no_file_holds_a_secret(path: Path) -> None:
    text = re.sub(r"--hash=sha256:[0-9a-f]{64}", "", path.read_text())  # of files that anybody can read
    assert secrets(text) == []
