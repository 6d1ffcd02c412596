"""The Python API in this process, as a notebook uses it: prepare, run, compare, sweep, load."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.pool_folders import read_pools
from helpers.runs import SETTINGS

import icalib
from icalib.api.results import Run
from icalib.core.component import has_setting
from icalib.core.errors import DataError, SettingError
from icalib.data.schema import Pool
from icalib.data.simulate import simulate
from icalib.methods.catalogue import load_method
from icalib.pipeline.loaded_ranker import LoadedRanker

LIMIT = {"validation": 12, "test": 12}


def settings_of(method: str) -> dict[str, object]:
    wanted = {**SETTINGS, "domain_pretraining": None, "calibration": "temperature"}
    kept = {path: value for path, value in wanted.items() if not path.startswith("domain_pretraining.")}
    return {path: value for path, value in kept.items() if has_setting(load_method(method), path)}


@pytest.fixture(scope="module", autouse=True)
def nothing_starts_ray() -> Iterator[None]:
    def refuse(*arguments: object, **keywords: object) -> None:
        raise AssertionError("a local executor started Ray")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("icalib.distributed.session.start", refuse)
        yield


@pytest.fixture(scope="module")
def teacher(runs: Path, tiny_pools: Path, tiny_bert: Path) -> Run:
    """Two views, MC dropout, and a calibrator."""
    return icalib.run(
        "icast-teacher", tiny_pools, labelled=0.3, limit=LIMIT, backbone=str(tiny_bert), runs=runs,
        settings=settings_of("icast-teacher"), executor="local",
    )  # fmt: skip


@pytest.fixture(scope="module")
def ranker(teacher: Run) -> LoadedRanker:
    return icalib.load(teacher.path)


@pytest.fixture(scope="module")
def test_pools(tiny_pools: Path) -> list[Pool]:
    return read_pools(tiny_pools, "test")


def question_of(pool: Pool) -> dict[str, object]:
    context = [{"speaker": turn.speaker, "text": turn.text} for turn in pool.context]
    return {"id": pool.pool_id, "context": context, "candidates": list(pool.candidates)}


def test_a_finished_run_is_returned_as_it_is(teacher: Run, runs: Path, tiny_pools: Path, tiny_bert: Path) -> None:
    written = (teacher.path / "result.json").stat().st_mtime_ns
    again = icalib.run(teacher.path / "config.yaml", runs=runs, executor="local")
    assert again == teacher
    assert (again.path / "result.json").stat().st_mtime_ns == written


def test_a_run_of_pools_that_were_prepared_again_is_not_returned(tmp_path: Path) -> None:
    simulate(tmp_path / "desk.jsonl", num_dialogues=60)
    pools, place = tmp_path / "pools", {"runs": tmp_path / "runs", "executor": "local", "labelled": 0.5}
    icalib.prepare(tmp_path / "desk.jsonl", pools, executor="local")
    run = icalib.run("bm25", pools, **place)
    icalib.prepare(tmp_path / "desk.jsonl", pools, seed=2, fresh=True, executor="local")
    with pytest.raises(SettingError, match="prepared again since"):
        icalib.run("bm25", pools, **place)
    again = icalib.run("bm25", pools, fresh=True, **place)
    assert again.path == run.path


def test_a_curve_says_what_labels_are_worth(
    tiny_pools: Path, tiny_bert: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = {"domain_pretraining": None, "similarity": None, "encoder.num_layers": 1, "regime.training.epochs": 1}
    made = {"limit": LIMIT, "settings": quick, "experiment": "curve"}
    place = {"backbone": str(tiny_bert), "runs": runs, "executor": "local"}
    fractions = [0.3, 0.1, 0.0999]  # the last two label as many pools, and are one point
    found = icalib.curve(["bert"], tiny_pools, fractions=fractions, seeds=2, resample_labels=True, **made, **place)
    assert "0.1 labels" in (said := capsys.readouterr().err)
    assert "as a smaller fraction does: left out of the curve" in " ".join(said.split())
    (points,) = found.curve.curves.values()
    few, many = (point.num_labels for point in points)
    assert few * 3 == pytest.approx(many, abs=3)
    assert [len(point.runs) for point in points] == [2, 2]
    assert [run.result["method"] for run in found.curve.lines] == ["bm25", "bi-encoder", "candidates-only"]
    assert "bert" in found.verdicts["bert"]
    assert found.verdicts["bert"] in repr(found)
    assert found.report.with_name("report.html").read_bytes() == found.report.read_bytes()
    assert all(text in found.report.read_text() for text in ("candidates-only", f">{many}<"))
    later = {"fractions": [0.2, 0.3], "experiment": "curve"}
    with pytest.raises(SettingError, match=r"-0\.3-s1 has a run with other settings .*another --experiment"):
        icalib.curve(["bert"], tiny_pools, seeds=1, **later, **place)
    assert not list(runs.glob("curve/*-0.2-s1"))  # nothing was computed before
    for wrong, said in (({"fractions": []}, "at least one"), ({"executor": "slurm"}, "Choose one of: ray, local")):
        with pytest.raises(SettingError, match=said):
            icalib.curve(["bert"], tiny_pools, **{**place, **wrong})


def test_a_curve_needs_a_method_that_learns_from_labels(tiny_pools: Path, runs: Path) -> None:
    with pytest.raises(SettingError, match="no method that learns from labels in dual-encoder, bm25"):
        icalib.curve(["dual-encoder", "bm25"], tiny_pools, fractions=[0.1], runs=runs, executor="local")


def test_predictions_are_those_of_the_command_line(
    ranker: LoadedRanker, teacher: Run, test_pools: list[Pool], tmp_path: Path, icalib: Any
) -> None:
    questions = [question_of(pool) for pool in test_pools]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))
    promise = ("--max-error", 0.97, "--confidence", 0.6, "--sets", 0.8)
    code, out, _ = icalib("predict", teacher.path, tmp_path / "q.jsonl", *promise)
    assert code == 0
    for _ in range(2):  # the models stay in memory, and the second call says the same
        predicted = ranker.predict(questions, max_error=0.97, confidence=0.6, sets=0.8)
        assert [answer.record() for answer in predicted.answers] == [json.loads(line) for line in out.splitlines()]
        assert len(predicted.notes) == 2  # the promise, and the sets
    smaller = [{**question, "candidates": question["candidates"][:2]} for question in questions]
    usual, covered = ranker.predict(smaller, max_error=0.97, confidence=0.6, sets=0.8).notes
    assert "don't rely on theirs" in usual
    assert "No promise covers these questions" in covered  # and none is made


def test_a_ranking_is_that_of_a_single_question(ranker: LoadedRanker, test_pools: list[Pool]) -> None:
    question = question_of(test_pools[0])
    (answer,) = ranker.predict([question]).answers
    context = [{"speaker": turn.speaker, "text": turn.text} for turn in test_pools[0].context]
    ranked = ranker.rank(context, test_pools[0].candidates)
    assert [one.prob for one in sorted(ranked, key=lambda one: one.index)] == answer.probs
    assert [one.logit for one in ranked] == sorted((one.logit for one in ranked), reverse=True)
    assert ranked[0].index == answer.answer
    assert [one.text for one in ranked] == [test_pools[0].candidates[one.index] for one in ranked]
    assert [one.rank for one in ranked] == [1, 2, 3, 4]
    texts = [turn.text for turn in test_pools[0].context]
    assert ranker.rank(texts, test_pools[0].candidates) == ranked


def test_equal_candidates_share_their_ranks(ranker: LoadedRanker) -> None:
    """Though they have dropout masks of their own."""
    ranked = ranker.rank(["My printer hums."], ["Hello!", "Restart it.", " Hello!"])
    tied = [one for one in ranked if one.text.strip() == "Hello!"]
    assert tied[0].logit == tied[1].logit
    assert [one.index for one in tied] == [0, 2]
    assert {one.rank for one in tied} in ({1.5}, {2.5})


def test_invalid_questions_are_named_with_their_field(ranker: LoadedRanker) -> None:
    with pytest.raises(DataError, match=r"field `candidates`"):
        ranker.rank(["It hums."], ["Restart it."])
    with pytest.raises(DataError, match=r"field `context\.0\.speaker`"):
        ranker.rank([{"speaker": "nobody", "text": "It hums."}], ["Restart it.", "Hello!"])
    right = {"context": ["It hums."], "candidates": ["Restart it.", "Hello!"]}
    with pytest.raises(DataError, match=r"question 2, field `candidates`"):
        ranker.predict([right, {**right, "candidates": ["Restart it."]}])
    with pytest.raises(DataError, match=r"pair 2, field `context`"):
        ranker.predict_proba([(["It hums."], "Restart it."), ([], "Restart it.")])


@pytest.mark.parametrize("wrong", ["No.", None, 1, {"a": "b"}, ["It hums.", None]])
def test_what_are_no_candidates_questions_or_pairs_is_refused(ranker: LoadedRanker, wrong: Any) -> None:
    for call in (lambda: ranker.rank(["It hums."], wrong), lambda: ranker.predict(wrong)):
        with pytest.raises(DataError, match="found"):
            call()
    with pytest.raises(DataError, match="found"):
        ranker.predict_proba(wrong)


def test_candidates_may_come_from_anything_that_has_some(ranker: LoadedRanker) -> None:
    texts = ["Restart it.", " Hello! ", "Good bye."]
    expected = ranker.rank(["It hums."], texts)
    assert [one.text for one in expected] == [texts[one.index] for one in expected]
    assert ranker.rank(["It hums."], (text for text in texts)) == expected
    assert ranker.rank(np.array(["It hums."]), np.array(texts)) == expected
    assert ranker.rank([{"text": "It hums.", "intents": None}], texts) == expected
    (answer,) = ranker.predict(iter([{"context": ["It hums."], "candidates": texts}])).answers
    assert answer.text == expected[0].text
