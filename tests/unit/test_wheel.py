"""The built wheel works without the checkout, from another folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel is installed; its dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    quiet = {"check": True, "cwd": folder, "capture_output": True}
    # pip builds in a copy's stead in the checkout: leave nothing there
    source = folder / "source"
    names = ("icalib", "tune_spaces", "pyproject.toml", "README.md", "LICENSE")
    source.mkdir()
    for name in names:
        subprocess.run(["cp", "-r", str(ROOT / name), str(source / name)], check=True)
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", "dist", str(source)], **quiet)
    (wheel,) = (folder / "dist").glob("*.whl")
    with ZipFile(wheel) as archive:  # which is all that pip does with pure Python
        archive.extractall(folder / "site")
    return folder / "site"


def run(installed: Path, folder: Path, *arguments: str) -> str:
    """Run Python with the installed package before all others."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_package_is_the_installed_one_and_complete(installed: Path, tmp_path: Path) -> None:
    assert run(installed, tmp_path, "-c", "import icalib; print(icalib.__file__)").startswith(str(installed))
    names = [path.relative_to(ROOT) for folder in ("icalib", "tune_spaces") for path in (ROOT / folder).rglob("*.*")]
    shipped = [name for name in names if name.suffix in (".py", ".j2", ".yaml", ".typed")]
    assert {name.suffix for name in shipped} == {".py", ".j2", ".yaml", ".typed"}
    assert [name for name in shipped if not (installed / name).is_file()] == []


def test_a_run_and_its_report_need_nothing_else(installed: Path, tmp_path: Path, tiny_pools: Path) -> None:
    options = ["--data", str(tiny_pools), "--limit", "validation=8,test=8", "--executor", "local"]
    run(installed, tmp_path, "-m", "icalib", "run", "bm25", *options)
    (report,) = (tmp_path / "runs").rglob("report.html")
    assert report.stat().st_size > 10_000
