"""Files that are uploaded with a job, and files that never are."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest

import icalib
from icalib.core.errors import SettingError
from icalib.distributed import upload
from icalib.distributed.upload import code_folders, pack

INSTALLED = Path(icalib.__file__).parents[1]
CODE = [
    "pyproject.toml",
    "my_lab/__init__.py",
    "my_lab/idea.py",
    "my_lab/words.txt",
    "my_lab/pools/__init__.py",
    "spaces/mine.py",
]
NEVER = [
    ".git/config", ".env", ".venv/lib/big.py", "env/pyvenv.cfg", "env/lib/big.py",
    "my_lab/__pycache__/idea.cpython-311.pyc",
    "runs/default/r/result.json", "pools/mine/pools.json", "my_lab/train.parquet", "model.safetensors",
    "my_lab/pytorch_model.bin", "dialogues.jsonl.gz", "dialogues.jsonl", "key.pem",
]  # fmt: skip


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A project that uses icalib and does not contain it."""
    for name in [*CODE, *NEVER]:
        path = tmp_path / "lab" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "lab"


def own_names(folder: Path, out: Path) -> set[str]:
    pack(folder, out)
    names = set(ZipFile(out).namelist())
    return {name for name in names if not name.startswith(("icalib/", "tune_spaces/"))}


def test_code_is_packed_and_data_weights_runs_and_secrets_are_not(lab: Path, tmp_path: Path) -> None:
    assert own_names(lab / "my_lab", tmp_path / "code.zip") == set(CODE)


def test_what_git_ignores_is_left_out(lab: Path, tmp_path: Path) -> None:
    (lab / ".gitignore").write_text("*.txt\n")
    (lab / "spaces" / ".gitignore").write_text("# not yet\n/mine.py\n")
    shutil.rmtree(lab / ".git")
    subprocess.run(["git", "init", "--quiet"], cwd=lab, check=True)
    assert own_names(lab, tmp_path / "code.zip") == set(CODE) - {"my_lab/words.txt", "spaces/mine.py"}


def test_links_out_of_the_project_are_left_out(lab: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "private.py").write_text("secret")
    (lab / "folder").symlink_to(tmp_path / "elsewhere")
    (lab / "file.py").symlink_to(tmp_path / "elsewhere" / "private.py")
    (lab / "same.py").symlink_to(lab / "my_lab" / "idea.py")
    assert own_names(lab, tmp_path / "code.zip") == {*CODE, "same.py"}


def test_icalib_itself_is_packed_with_another_project(lab: Path, tmp_path: Path) -> None:
    packed = pack(lab, tmp_path / "code.zip")
    assert packed.source == (lab, INSTALLED / "icalib", INSTALLED / "tune_spaces")
    with ZipFile(packed.path) as archive:
        names = archive.namelist()
        assert archive.read("icalib/core/job_file.py") == (INSTALLED / "icalib/core/job_file.py").read_bytes()
    assert {"icalib/__main__.py", "icalib/reports/page.html.j2", "tune_spaces/icast_tpe.py"} <= set(names)
    assert len(names) == packed.num_files
    assert packed.num_bytes == packed.path.stat().st_size


def test_a_checkout_is_packed_whole_and_a_folder_outside_of_projects_is_not(tmp_path: Path) -> None:
    assert code_folders(INSTALLED / "icalib") == [("", INSTALLED)]
    assert code_folders(tmp_path) == [(name, INSTALLED / name) for name in ("icalib", "tune_spaces")]


def test_the_same_code_gives_the_same_bytes(lab: Path, tmp_path: Path) -> None:
    pack(lab, tmp_path / "one.zip")
    (lab / "my_lab" / "idea.py").touch()
    pack(lab, tmp_path / "two.zip")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


def test_an_archive_that_is_too_large_names_the_largest_files(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lab / "figure.png").write_bytes(bytes(range(256)) * 8000)
    monkeypatch.setattr(upload, "MAX_BYTES", 2**10)
    with pytest.raises(SettingError, match=r"largest files: figure\.png "):
        pack(lab, tmp_path / "code.zip")
