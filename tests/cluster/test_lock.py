"""The image installs what cluster/requirements.lock has hashes of, and says what it contains."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache

from helpers.manifests import PROJECT, ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FROM_PYTORCH = re.compile(r"torch|triton|(nvidia|cuda)-.*")
"""What PyTorch's index gives: builds for CPUs or for a version of CUDA, which differ in their files."""


@cache
def locked() -> dict[str, tuple[Requirement, list[str]]]:
    """Requirement and hashes of each package."""
    text = re.sub(r"^#.*\n", "", (ROOT / "cluster/requirements.lock").read_text(), flags=re.MULTILINE)
    entries = re.findall(r"^(\S.*?) \\\n((?:    --hash=\S+(?: \\)?\n)+)", text, flags=re.MULTILINE)
    assert text.count("==") == len(entries)
    found: dict[str, tuple[Requirement, list[str]]] = {}
    for words, hashes in entries:
        requirement = Requirement(words)
        found[canonicalize_name(requirement.name)] = requirement, re.findall(r"--hash=(\S+)", hashes)
    return found


def test_each_locked_package_has_its_pinned_version_and_sha256() -> None:
    assert len(locked()) > 50
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"]
    pins = {canonicalize_name(one.name): one.specifier for one in map(Requirement, lines)}
    for name, (requirement, hashes) in locked().items():
        assert requirement.specifier == pins[name]
        assert hashes
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", one) for one in hashes)


def test_the_lock_has_what_icalib_requires_from_pypi() -> None:
    extras = PROJECT["optional-dependencies"]
    direct = [*PROJECT["dependencies"], *extras["minilm"], *extras["serve"], *extras["external"]]
    names = {canonicalize_name(Requirement(one).name) for one in direct}
    assert names - {"torch"} <= locked().keys()
    assert not [name for name in locked() if FROM_PYTORCH.fullmatch(name)]


def test_the_bill_of_materials_lists_each_installed_package_once() -> None:
    command = [sys.executable, str(ROOT / "cluster/sbom.py")]
    bill = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    names = [one["name"] for one in bill["components"]]
    assert len(set(names)) == len(names) > 50
    assert bill["metadata"]["component"]["name"] == "icalib"
