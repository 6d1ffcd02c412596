"""`icalib prepare` on data that people have, and what its messages name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from icalib.core.errors import ClusterError
from icalib.data.sources.readers import READERS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "data.md").read_text()


@pytest.fixture
def prepare(icalib: Any) -> Callable[..., tuple[int, str]]:
    """Run `icalib prepare`; gives the exit code and standard error."""

    def call(*arguments: object) -> tuple[int, str]:
        code, _, err = icalib("prepare", *arguments)
        return code, err

    return call


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """Sixty conversations of two messages."""
    path = tmp_path / "export.csv"
    rows = [
        f"{nr},{who},{what} {nr} {nr * 7}" for nr in range(60) for who, what in (("ann", "it hums"), ("bob", "restart"))
    ]
    path.write_text("\n".join(["nr,who,what", *rows]) + "\n")
    return path


OPTIONS = ("--columns", "id=nr,sender=who", "--columns", "text=what", "--speakers", "bob=agent,*=user")


def test_a_preview_writes_nothing(prepare: Any, export: Path) -> None:
    code, err = prepare(export, "--preview", *OPTIONS)
    assert code == 0
    assert "user: it hums 0 0\n" in err
    assert [path.name for path in export.parent.iterdir()] == ["export.csv"]


def test_a_folder_is_refused_or_reused_before_ray_is_started(
    prepare: Any, export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = (export, *OPTIONS, "--negatives", "random", "--candidates", "2", "--out", tmp_path / "pools")
    assert prepare(*given, "--executor", "local")[0] == 0

    def start(*_: object, **__: object) -> None:
        raise ClusterError("Ray is started")

    monkeypatch.setattr("icalib.distributed.session.has_joined", lambda: False)  # as other tests in this process have
    monkeypatch.setattr("icalib.distributed.session.start", start)
    code, err = prepare(*given)
    assert (code, "no action needed" in err, "Ray" in err) == (0, True, False)
    code, err = prepare(*given, "--seed", "8")
    assert (code, "prepared from other inputs (seed)" in err, "Ray" in err) == (2, True, False)
    code, err = prepare(*given, "--seed", "8", "--fresh")
    assert (code, "Ray is started" in err) == (2, True)


def test_a_preview_shows_what_is_wrong_by_field(prepare: Any, tmp_path: Path) -> None:
    rows = [{"id": "", "sender": "ann", "text": "hi"}] * 4
    rows += [{"id": str(number), "sender": "U02B", "text": "hi"} for number in range(9)]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    columns = ("--columns", "id=id,sender=sender,text=text", "--speakers", "ann=user,bob=agent")
    code, err = prepare(tmp_path / "rows.jsonl", "--preview", "--format", "table", *columns)
    assert code == 0
    said = [line for line in err.splitlines() if line.startswith("not valid")]
    assert len(said) == 2
    assert "U02B" in said[0]
    assert "And 8 more records like it." in said[0]
    assert "And 3 more records like it." in said[1]


def test_an_export_is_prepared(prepare: Any, export: Path) -> None:
    out = export.parent / "pools"
    command = (export, "--out", out, "--candidates", 2, "--negatives", "random", "--executor", "local", *OPTIONS)
    code, err = prepare(*command)
    assert (code, (out / "pools.json").is_file()) == (0, True)
    assert "the dialogues have two turns" in err
    code, err = prepare(*command, "--min-context", 2)
    assert code == 2
    assert "other inputs (min_context)" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--out is missing"),
        (["--preview"], "The first record has the fields nr, who, what."),
        (["--preview", "--columns", "text"], "--columns text can't be parsed"),
        (["--preview", "--speakers", "bob=robot"], "speakers.bob: Input should be"),
    ],
)
def test_wrong_options_are_named_with_the_cure(prepare: Any, export: Path, arguments: list[str], said: str) -> None:
    code, err = prepare(export, *arguments)
    assert code == 2
    assert err.startswith("error: ")
    assert said in err


def test_the_page_of_formats_has_each_of_them() -> None:
    assert set(READERS.builtin) <= set(re.findall(r"`([\w-]+)`", PAGE))
