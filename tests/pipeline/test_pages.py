"""The commands of the guides run as they are written and in order, with a tiny encoder and few pools.

A page assumes its reader's files; here they are those of a simulated desk, and RUN and POOL are the names of one.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from helpers.annotators import exported
from helpers.pages import shell_lines, text_of, words_of
from typer.testing import CliRunner

from icalib.cli.app import app
from icalib.core.errors import DataError

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    *(
        f"docs/{name}.md"
        for name in (
            "quick-start",
            "own-data",
            "labels",
            "methods",
            "calibration",
            "guarantees",
            "none-of-these",
            "reports",
            "self-training",
            "sweeps",
            "export",
            "calibrate-scores",
        )
    ),
)
ELSEWHERE = re.compile(
    r"^(serve|submit|jobs|doctor|demo|test) ?"  # they have tests of their own
    r"|s3://|gs://|external:"  # other machines, and models of a hub
    r"|filled.csv|^label ask|answers.jsonl --data"  # of annotators and language models
)
LOCALLY = ("--executor", "local")
TRAINING = ("run", "compare", "curve", "sweep")
WITH_EXECUTOR = ("prepare", "evaluate", "score", "export")
QUICK = (
    *("--limit", "train=120,validation=20,test=40"),
    *("--set", "encoder.num_layers=1", "--set", "encoder.budget.max_context_tokens=60"),
)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, tiny_bert: Path) -> Path:
    """A folder with the files and runs that the pages name."""
    folder = tmp_path_factory.mktemp("desk")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for seed, name in enumerate(("dialogues", "more-dialogues", "fresh", "chats"), 1):
            icalib("simulate", f"{name}.jsonl", "--dialogues", "300", "--seed", f"{seed}")
        for name in ("dialogues", "more-dialogues"):
            Path(f"{name}.jsonl.gz").write_bytes(gzip.compress(Path(f"{name}.jsonl").read_bytes()))
        for source, name in (("chats", "chats"), ("more-dialogues", "more-chats")):
            write_csv(Path(f"{source}.jsonl"), Path(f"{name}.csv"))
        for source, name in (("dialogues", "mine"), ("fresh", "other"), ("chats", "new")):
            icalib("prepare", f"{source}.jsonl", "--out", f"pools/{name}", "--labelled", "0.1", "--executor", "local")
        for method, labelled in (
            ("bert", 0.1),
            ("icast", 0.1),
            ("icast", 0.05),
            ("dual-encoder", 0.1),
            ("gpf-bert", 0.1),
        ):
            fraction = ("--labelled", f"{labelled}")
            icalib("run", method, "--data", "pools/mine", *fraction, "--backbone", str(tiny_bert), *QUICK, *LOCALLY)
        icalib("compare", "bm25", "candidates-only", "--data", "pools/mine", *QUICK, *LOCALLY)
        write_scores()
        Path("questions.jsonl").write_text(
            "".join(
                json.dumps({"context": ["My printer hums."], "candidates": ["Restart it.", "Hello!"], "id": f"q{n}"})
                + "\n"
                for n in range(3)
            )
        )
    return folder


def write_csv(dialogues: Path, table: Path) -> None:
    """One message a row, as an export has them."""
    with dialogues.open() as lines, table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "time", "sender", "text"])
        for dialogue in map(json.loads, lines):
            for minute, turn in enumerate(dialogue["utterances"]):
                time = f"2026-01-01T10:{minute:02d}:00"
                writer.writerow([dialogue["dialog_id"], time, turn["speaker"], turn["text"]])


def write_scores() -> None:
    """Scores of a reranker, by the names that the pages give to them."""
    rng = np.random.default_rng(1)
    label = np.tile([1, 0, 0, 0], 60)
    columns = {
        "query": [f"q{row // 4}" for row in range(240)],
        "candidate": [row % 4 for row in range(240)],
        "score": (label + rng.normal(size=240)).tolist(),
        "label": label.tolist(),
    }
    table = pa.table(columns)
    for name in ("scores", "new"):
        pq.write_table(table, f"{name}.parquet")
    for name in ("scores", "more"):
        pc.write_csv(table, f"{name}.csv")
    Path("pairs").mkdir()
    pairs = {"context": [["My printer hums."]] * 2, "candidate": ["Restart it.", "Hello!"]}
    pq.write_table(pa.table(pairs), "pairs/1.parquet")
    Path("minilm.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


def icalib(*words: str) -> None:
    print("icalib", *words)
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0


def commands(page: str) -> Iterator[list[str]]:
    for line in shell_lines(text_of(ROOT / page)):
        for words in words_of(line):
            if not ELSEWHERE.search(" ".join(words)):
                yield words


def test_pages_have_commands() -> None:
    assert all(list(commands(page)) for page in PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run(
    page: str, desk: Path, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shutil.copytree(desk, tmp_path / "desk"))
    lines = [" ".join(words) for words in commands(page)]
    if any(re.search(r"--out pools/mine\b(?!-)", line) for line in lines):
        shutil.rmtree("pools/mine")
    if any(line.startswith(TRAINING) and re.search(r"--data pools/mine\b(?!-)", line) for line in lines):
        shutil.rmtree("runs")
    pools = pq.read_table(desk / "runs/default/icast-mine-0.05-s1/predictions/test.parquet")["pool_id"]
    for words in commands(page):
        run = min(map(str, Path("runs/default").glob("bert-*")), default="RUN")
        given = [{"RUN": run, "OTHER_RUN": run, "POOL": pools[0].as_py()}.get(word, word) for word in words]
        if words[0] in TRAINING:
            given += ["--backbone", str(tiny_bert), *QUICK, *(("--trials", "3") if words[0] == "sweep" else ())]
        try:
            icalib(*given, *(LOCALLY if words[0] in TRAINING + WITH_EXECUTOR else ()))
        except DataError as error:
            if "can't promise" not in str(error):  # which is right for a tiny encoder
                raise
        if words[:2] == ["label", "next"] and (batch := Path(words[-1])).suffix == ".json":
            exported(batch, batch.with_name(f"{batch.stem}-export.json"), {"ann": lambda pool: [0]})
