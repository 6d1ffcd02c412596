"""Wheel and source distribution: what `pip install` gives is all that the commands need."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from icalib.core.version import __version__

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[2]
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, built of what git tracks, unpacked."""
    folder = tmp_path_factory.mktemp("source")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split(
        "\n"
    )
    for name in filter(None, tracked):
        target = folder / "checkout" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    build = "from setuptools.build_meta import build_sdist; print(build_sdist('..'))"
    subprocess.run([sys.executable, "-c", build], cwd=folder / "checkout", check=True, capture_output=True)
    with tarfile.open(folder / f"icalib-{__version__}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / f"icalib-{__version__}"


def test_the_commands_run_from_a_wheel_of_the_source_distribution(source: Path, tmp_path: Path) -> None:
    subprocess.run([*PIP, "wheel", source, "--no-deps", "--no-build-isolation", "-w", tmp_path], check=True)
    (wheel,) = tmp_path.glob("icalib-*.whl")
    subprocess.run([*PIP, "install", "--no-deps", "--target", tmp_path / "site", wheel], check=True)
    (tmp_path / "work").mkdir()

    def python(*words: str) -> str:
        command = [sys.executable, "-P", *words]
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path / "site")}
        done = subprocess.run(
            command, cwd=tmp_path / "work", env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    assert str(tmp_path / "site") in python("-c", "import icalib; print(icalib.__file__)")
    assert __version__ in python("-c", "from importlib.metadata import version; print(version('icalib'))")
    python("-m", "icalib", "simulate", "desk.jsonl", "--dialogues", "120")
    python("-m", "icalib", "prepare", "desk.jsonl", "--out", "pools/desk", "--labelled", "0.1", "--executor", "local")
    python("-m", "icalib", "run", "bm25", "--data", "pools/desk", "--executor", "local")
    assert "Plotly" in (tmp_path / "work/runs/default/bm25-desk-0.1-s1/report.html").read_text()
    assert "icast_published" in python(
        "-c", "from icalib.sweeps.space import load_space; print(load_space('icast_published').name)"
    )
