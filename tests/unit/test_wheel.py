"""The wheel of the source distribution works without the checkout, from another folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of the source distribution; its dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines():
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    build = "from setuptools.build_meta import build_sdist; build_sdist('..')"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    (archive,) = folder.glob("*.tar.gz")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheel = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", "dist", str(archive)]
    subprocess.run(wheel, cwd=folder, check=True, capture_output=True)
    (found,) = (folder / "dist").glob("*.whl")
    with ZipFile(found) as files:  # which is all that pip does with pure Python
        files.extractall(folder / "site")
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
