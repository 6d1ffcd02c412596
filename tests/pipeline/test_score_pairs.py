"""Parquet files of any size scored into a folder: formats, order, resuming, object stores, bad rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from helpers.runs import run_context, small_settings
from helpers.stores import Machines

from icalib.core.errors import DataError, SettingError
from icalib.core.events import ignore
from icalib.pipeline import score_pairs
from icalib.pipeline.loaded_ranker import LoadedRanker
from icalib.pipeline.run import run
from icalib.pipeline.score_pairs import claim, pairs_job
from icalib.stages.executor import LocalExecutor

CONTEXTS: list[Any] = [["my card is lost"], ["hello", "which card"], ["good bye"]]
CANDIDATES = ["block the card", "hello", "which card", "good bye"]
Command = Callable[..., str]


@pytest.fixture(scope="module")
def trained(tiny_pools: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(small_settings("bert", tiny_pools, tiny_bert), run_context(tmp_path_factory.mktemp("runs"))).path


@pytest.fixture
def icalib(icalib: Callable[..., tuple[int, str, str]]) -> Command:
    """Run a command line in this process; gives its exit code and standard error."""

    def call(*arguments: object) -> str:
        code, _, err = icalib(*arguments, "--executor", "local")
        return f"{code} {err}"

    return call


def write_pairs(path: Path, num_rows: int = 50, row_group_size: int = 7) -> list[tuple[list[str], str]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    pairs = [(CONTEXTS[row // 4 % 3], f"{CANDIDATES[row % 4]} {row % 5}") for row in range(num_rows)]
    contexts, candidates = zip(*pairs, strict=True)
    table = pa.table({"context": contexts, "candidate": candidates, "x": range(num_rows)})
    pq.write_table(table, path, row_group_size=row_group_size)
    return pairs


def scored(folder: Path) -> dict[str, list[Any]]:
    return ds.dataset(folder).to_table().to_pydict()


def test_pairs_have_the_probabilities_of_predict_proba_in_their_order(
    trained: Path, tmp_path: Path, icalib: Command
) -> None:
    pairs = write_pairs(tmp_path / "pairs.parquet")
    said = icalib("score", trained, tmp_path / "pairs.parquet", "--out", tmp_path / "out", "--rows-per-file", 20)
    assert said.startswith("0 "), said
    assert "50 rows in 3 files" in said
    found = scored(tmp_path / "out")
    assert found["row"] == list(range(50))
    assert set(found["file"]) == {"pairs.parquet"}
    expected = LoadedRanker.load(trained).predict_proba(pairs)
    np.testing.assert_allclose(found["prob"], expected, atol=1e-6)


def test_rows_of_pools_have_the_probabilities_of_predict(trained: Path, tmp_path: Path, icalib: Command) -> None:
    pools = [CANDIDATES[:3], CANDIDATES]
    table = pa.table({"context": [CONTEXTS[0]] * 2, "candidates": pools, "candidate": [None, "not read"]})
    pq.write_table(table, tmp_path / "pools.parquet")
    assert icalib("score", trained, tmp_path / "pools.parquet", "--out", tmp_path / "out").startswith("0 ")
    answers = LoadedRanker.load(trained).predict([{"context": CONTEXTS[0], "candidates": pool} for pool in pools])
    found = scored(tmp_path / "out")
    assert (found["row"], found["candidate"]) == ([0] * 3 + [1] * 4, [0, 1, 2, 0, 1, 2, 3])
    assert found["prob"] == pytest.approx([prob for answer in answers.answers for prob in answer.probs], abs=1e-6)
    assert "p_none" not in found


def test_turns_may_lack_what_is_not_read(trained: Path, tmp_path: Path, icalib: Command) -> None:
    whole = {"text": "my card is lost", "speaker": "agent", "intents": ["x"]}
    contexts = [[whole], [{"text": "my card is lost"}]]  # Parquet has null for what the second one lacks
    pools = [["block the card", "hello"]] * 2
    pq.write_table(pa.table({"context": contexts, "candidates": pools}), tmp_path / "pools.parquet")
    said = icalib("score", trained, tmp_path / "pools.parquet", "--out", tmp_path / "out")
    assert said.startswith("0 "), said
    prob = scored(tmp_path / "out")["prob"]
    assert prob[:2] == pytest.approx(prob[2:], abs=1e-6)


def test_an_interrupted_scoring_resumes_and_gives_the_same_files(
    trained: Path, tmp_path: Path, icalib: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        write_pairs(tmp_path / f"in/{name}.parquet")
    arguments = ("score", trained, tmp_path / "in", "--rows-per-file", 20, "--out")
    assert "100 rows in 6 files" in icalib(*arguments, tmp_path / "whole")
    icalib(*arguments, tmp_path / "halved")
    for index in (1, 4):
        (tmp_path / f"halved/part-00000{index}.parquet").unlink()
    computed: list[int] = []
    compute = score_pairs.ScorePairsJob.compute_shard

    def counting(self: Any, index: int, *others: Any) -> None:
        computed.append(index)
        compute(self, index, *others)

    monkeypatch.setattr(score_pairs.ScorePairsJob, "compute_shard", counting)
    assert "4 of 6 files are finished already" in icalib(*arguments, tmp_path / "halved")
    assert computed == [1, 4]
    assert scored(tmp_path / "halved") == scored(tmp_path / "whole")


def test_finished_files_that_were_damaged_are_scored_again(trained: Path, tmp_path: Path, icalib: Command) -> None:
    write_pairs(tmp_path / "pairs.parquet")
    arguments = ("score", trained, tmp_path / "pairs.parquet", "--rows-per-file", 20, "--out", tmp_path / "out")
    icalib(*arguments)
    expected = scored(tmp_path / "out")
    path = tmp_path / "out/part-000001.parquet"
    table = pq.read_table(path)
    values = [0.5, *table["prob"].to_pylist()[1:]]
    pq.write_table(table.set_column(table.column_names.index("prob"), "prob", pa.array(values, pa.float64())), path)
    said = icalib(*arguments)
    assert f"{path} has " in said
    assert "2 of 3 files are finished already" in said
    assert scored(tmp_path / "out") == expected
    (tmp_path / "out/_scored.json").write_text("{")
    assert "_scored.json can't be read" in icalib(*arguments)


def test_a_folder_of_other_scores_is_refused(trained: Path, tmp_path: Path) -> None:
    write_pairs(tmp_path / "pairs.parquet")
    claim(pairs_job(trained, tmp_path / "pairs.parquet", 20), tmp_path / "out")
    with pytest.raises(SettingError, match="scores of other pairs"):
        claim(pairs_job(trained, tmp_path / "pairs.parquet", 10), tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").touch()
    with pytest.raises(SettingError, match="is not empty"):
        claim(pairs_job(trained, tmp_path / "pairs.parquet", 10), tmp_path / "mine")


def test_an_object_store_is_read_and_written(
    trained: Path, tmp_path: Path, icalib: Command, machines: Machines
) -> None:
    write_pairs(machines.there("pairs.parquet"))
    write_pairs(tmp_path / "pairs.parquet")
    machines.on("one", "x")
    said = icalib("score", trained, f"{machines.uri}/pairs.parquet", "--out", f"{machines.uri}/out")
    assert said.startswith("0 "), said
    icalib("score", trained, tmp_path / "pairs.parquet", "--out", tmp_path / "out")
    assert scored(machines.there("out")) == scored(tmp_path / "out")
    assert not list((tmp_path / "one").rglob("pairs.parquet"))  # read where it is, not copied


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"context": ["a", "b"], "candidate": ["c", " "]}, 'line 2, field `candidate`: found " "'),
        ({"context": ["a", None], "candidate": ["c", "d"]}, "line 2, field `context`: found null. Expected a text"),
        ({"context": ["a", "b"], "candidates": [["c"], []]}, r"line 2, field `candidates`: found \[\]"),
        ({"context": ["a", "b"], "candidates": [True, False]}, "line 1, field `candidates`: found true"),
    ],
)
def test_bad_rows_are_reported(columns: dict[str, Any], found: str, trained: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table(columns), tmp_path / "pairs.parquet")
    job = pairs_job(trained, tmp_path / "pairs.parquet", 10)
    claim(job, tmp_path / "out")
    with pytest.raises(DataError, match=found):
        LocalExecutor().map(job, tmp_path / "out", "score", ignore)
    assert not list((tmp_path / "out").glob("part-*"))


def test_a_file_whose_rows_were_corrected_may_have_the_same_folder(
    trained: Path, tmp_path: Path, icalib: Command
) -> None:
    path = tmp_path / "pairs.parquet"
    for candidates, code in ((["c", " "], "2 "), (["c", "d"], "0 ")):
        pq.write_table(pa.table({"context": ["a", "b"], "candidate": candidates}), path)
        assert icalib("score", trained, path, "--out", tmp_path / "out").startswith(code)
        assert (tmp_path / "out").exists() == (code == "0 ")


def test_an_interrupted_scoring_that_has_finished_no_file_gives_its_folder_up(
    trained: Path, tmp_path: Path, icalib: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        assert (tmp_path / "out").exists()
        raise KeyboardInterrupt

    write_pairs(tmp_path / "pairs.parquet")
    monkeypatch.setattr(score_pairs.ScorePairsJob, "compute_shard", interrupted)
    assert "Interrupted" in icalib("score", trained, tmp_path / "pairs.parquet", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_files_that_are_no_parquet_are_reported(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.parquet").write_text("context,candidate\n")
    with pytest.raises(DataError, match="can't be read as Parquet"):
        pairs_job(trained, tmp_path / "pairs.parquet", 10)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no Parquet file with rows"):
        pairs_job(trained, tmp_path / "empty", 10)


def test_an_output_folder_in_the_input_folder_is_refused(trained: Path, tmp_path: Path, icalib: Command) -> None:
    write_pairs(tmp_path / "in/a.parquet")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    for out in ("in", "in/out", "link/deep/out"):
        said = icalib("score", trained, tmp_path / "in", "--out", tmp_path / out)
        assert f"{tmp_path / out} is in {tmp_path / 'in'}, which is read. Choose another --out." in said
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["a.parquet"]


def test_an_output_in_the_pool_folder_is_refused(
    trained: Path, tiny_pools: Path, tmp_path: Path, icalib: Command
) -> None:
    pools = Path(shutil.copytree(tiny_pools, tmp_path / "pools"))
    out = pools / "test.parquet"
    before = out.read_bytes()
    said = icalib("score", trained, "--data", pools, "--out", out, "--executor", "local")
    assert f"{out} is in {pools}, which is read. Choose another --out." in said
    assert out.read_bytes() == before


def test_an_output_that_is_named_as_another_kind_of_file_is_refused(
    trained: Path, tiny_pools: Path, tmp_path: Path, icalib: Command
) -> None:
    said = icalib("score", trained, "--data", tiny_pools, "--out", tmp_path / "out.csv")
    assert "a Parquet file is written. Let its name end in .parquet" in said
    assert not (tmp_path / "out.csv").exists()


def test_names_that_others_skip_are_not_read(trained: Path, tmp_path: Path) -> None:
    for name in ("a.parquet", "deep/b.parquet", "_delta_log/c.parquet", ".d.parquet"):
        write_pairs(tmp_path / "in" / name)
    (tmp_path / "in/_temporary.parquet").write_text("half")
    job = pairs_job(trained, tmp_path / "in", 20)
    assert [file.name for file in job.files] == ["a.parquet", "deep/b.parquet"]
