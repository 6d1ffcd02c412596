"""The project's own files agree with one another."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DIRECT = [
    Requirement(line)
    for group in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    for line in group
]


def pins() -> dict[str, Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(requirement.name): requirement for requirement in requirements}


def planned(target: str) -> str:
    """What make would run for a target on a machine where nothing is installed yet."""
    command = ["make", "--no-print-directory", "--dry-run", "--always-make", target]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("requirement", DIRECT, ids=str)
def test_each_direct_dependency_is_pinned_within_its_bounds(requirement: Requirement) -> None:
    (pin,) = pins()[canonicalize_name(requirement.name)].specifier
    assert pin.operator == "=="
    assert requirement.specifier.contains(pin.version)


def test_pins_are_exact_and_fit_every_machine() -> None:
    for requirement in pins().values():
        (pin,) = requirement.specifier
        assert pin.operator == "=="
        assert Version(pin.version).local is None, f"{requirement} is one machine's build"


def test_make_installs_the_pinned_torch_before_all_else() -> None:
    installs = [line for line in planned("venv").splitlines() if "pip install" in line]
    assert installs[0].endswith(f"pip install --no-compile {pins()['torch']}")
    assert "-c constraints.txt" in installs[1]
    assert not re.search(r"torch==\d", (ROOT / "Makefile").read_text())


def test_make_lists_its_targets_and_those_of_the_readme_and_docs_exist() -> None:
    command = ["make", "--no-print-directory"]
    shown = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    phony = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert phony is not None
    targets = set(phony[1].split())
    assert set(re.findall(r"^make ([a-z-]+) ", shown, flags=re.MULTILINE)) == targets
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text() for page in pages)
    named = set(re.findall(r"`make ([a-z]+)`", text))
    named |= set(re.findall(r"^ *(?:\$ )?make ([a-z]+)(?: *#.*)?$", text, flags=re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: path.stem)
def test_what_a_benchmark_imports_of_icalib_exists(path: Path) -> None:
    """Benchmarks run seldom."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("icalib."):
            exec(compile(ast.Module([node], []), str(path), "exec"), {})
