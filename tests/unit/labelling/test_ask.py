"""A language model as an annotator, by an endpoint on this machine."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from email.utils import formatdate
from itertools import count
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.annotators import filled_table
from helpers.chat_endpoint import Endpoint, Response, endpoint, knows
from helpers.pool_folders import read_pools, seal

from icalib import label_ask, label_import, label_next
from icalib.core.errors import DataError, EndpointError, SettingError
from icalib.core.parquet import read_parquet
from icalib.data.pools import read_column, read_pool_set
from icalib.data.schema import Pool
from icalib.labelling import chat
from icalib.labelling.annotations import by_model, read_annotations
from icalib.labelling.choose import labelled_rows
from icalib.labelling.judged import Judgements
from icalib.labelling.model_answers import parsed_answer
from icalib.score_files.scores import Columns, read_scores
from icalib.training.pseudo_labelled import SOFT_LABELS_FILE

Command = Callable[..., tuple[int, str, str]]
FAST = 1e6  # requests per minute


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "_BACKOFF_S", 0.001)


@pytest.fixture(scope="module")
def labelled(tiny_pools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny pools with people's labels of 20 random ones besides those that they have."""
    folder = tmp_path_factory.mktemp("labelled")
    right = {pool.pool_id: pool.right for pool in read_pools(tiny_pools, "train")}
    batch = label_next(data=tiny_pools, out=folder / "batch.csv", number=20)
    label_import(
        filled_table(batch.path, folder / "filled.csv", right.__getitem__, zeros=True), tiny_pools, folder / "p"
    )
    return folder / "p"


def people_labelled(folder: Path) -> list[Pool]:
    pools = read_pools(folder, "train")
    return [pools[row] for row in labelled_rows(read_pool_set(folder), read_column(folder, "train", "label_order"))]


def asked(data: Path, out: Path, at: Endpoint, number: int = 10, **options: Any) -> Any:
    return label_ask(data, out, url=at.url, model="m", number=number, requests_per_minute=FAST, **options)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_pool_is_asked_about_once_and_more_pools_contain_fewer(labelled: Path, tmp_path: Path) -> None:
    out, num_labelled = tmp_path / "a.jsonl", len(people_labelled(labelled))
    with endpoint(knows(read_pools(labelled, "train"))) as at:
        first = asked(labelled, out, at)
        assert (first.num_pools, first.num_new, len(at.requests)) == (
            num_labelled + 10,
            num_labelled + 10,
            first.num_new,
        )
        assert (first.checked.num_right, first.checked.num_checked) == (num_labelled, num_labelled)
        assert {request["path"] for request in at.requests} == {"/v1/chat/completions"}
        assert at.requests[0]["temperature"] == 0
        again = asked(labelled, out, at)
        assert (again.num_new, again.checked) == (0, first.checked)
        assert asked(labelled, out, at, 12).num_new == 2
    with endpoint(knows([])) as other:
        assert asked(labelled, out, other, 12).num_new == 0
        assert other.requests == []


@pytest.mark.parametrize(
    ("reply", "answer"),
    [("2", 2), (" **3**.\n", 3), ("0", 0), ("<think>1 or 2?</think>\n2", 2), ("[4]", 4)]
    + [(text, None) for text in ("5", "-1", "1 or 2", "", "The second", "2. Restart it", "1.5", "<think>2")],
)
def test_a_reply_is_a_candidates_number_or_unclear(reply: str, answer: int | None) -> None:
    assert parsed_answer(reply, 4) == answer


def test_unclear_replies_are_kept_counted_and_no_labels(labelled: Path, tmp_path: Path) -> None:
    clear = knows(read_pools(labelled, "train"))

    def respond(body: Mapping[str, Any], number: int) -> Response:
        return Response([None, "I think 1", "0"][number]) if number < 3 else clear(body, number)

    with endpoint(respond) as at:
        found = asked(labelled, tmp_path / "a.jsonl", at)
        assert (len(found.unclear), found.num_none) == (2, 1)
        assert asked(labelled, tmp_path / "a.jsonl", at).num_new == 0
    assert {line["reply"] for line in lines(tmp_path / "a.jsonl") if line["answer"] is None} == {"", "I think 1"}
    imported = label_import(tmp_path / "a.jsonl", labelled, tmp_path / "new")
    assert set(imported.unfinished) == set(found.unclear)


def test_a_model_whose_first_replies_are_all_unclear_is_not_asked_on(labelled: Path, tmp_path: Path) -> None:
    with endpoint(lambda body, number: Response("Let me think")) as at:
        with pytest.raises(EndpointError, match=r"first 4 replies of m .*'Let me think'"):
            asked(labelled, tmp_path / "a.jsonl", at)
        assert len(at.requests) == 4
        assert asked(labelled, tmp_path / "a.jsonl", at).num_new == len(people_labelled(labelled)) + 10 - 4


def test_a_reply_in_parts_is_read(labelled: Path, tmp_path: Path) -> None:
    with endpoint(lambda body, number: Response([{"type": "text", "text": "0"}])) as at:
        found = asked(labelled, tmp_path / "a.jsonl", at)
    assert (found.unclear, found.num_none) == ((), found.num_new)


def test_a_busy_endpoint_is_asked_again_when_it_says(labelled: Path, tmp_path: Path) -> None:
    clear, notes = knows(read_pools(labelled, "train")), list[str]()
    soon = formatdate(time.time() + 1, usegmt=True)
    busy = [
        Response(status=429, headers={"Retry-After": "1.0"}),
        Response(status=503, headers={"Retry-After": soon}),
        Response(status=500),
        Response(headers={"Content-Length": "5000"}),  # a connection that is cut off
    ]
    with endpoint(lambda body, number: busy[number] if number < 4 else clear(body, number)) as at:
        found = asked(labelled, tmp_path / "a.jsonl", at, note=notes.append)
        assert len(at.requests) == found.num_new + 4
    assert found.unclear == ()
    assert any("429" in note and "waiting 1 s" in note for note in notes)


def test_a_pool_that_is_refused_leaves_the_others_their_answers(labelled: Path, tmp_path: Path) -> None:
    """A content filter, or a limit of length; in the next call, too."""
    clear, scores = knows(read_pools(labelled, "train")), tmp_path / "scores.jsonl"
    unfit: dict[str, Response] = {}

    def respond(body: Mapping[str, Any], number: int) -> Response:
        text = body["messages"][1]["content"]
        if number in (1, 5):
            unfit[text] = Response(status=400, body=b"content_filter") if number == 1 else Response(body=b"{}")
        return unfit.get(text) or clear(body, number)

    with endpoint(respond) as at:
        found = asked(labelled, tmp_path / "a.jsonl", at)
        assert (len(found.refused), found.num_new) == (2, found.num_pools)
        again = asked(labelled, tmp_path / "a.jsonl", at, scores=scores)
    assert (again.num_new, again.refused.keys()) == (0, found.refused.keys())
    assert sorted(reason.split("answers ")[1][:9] for reason in found.refused.values()) == ["400 (cont", "something"]
    assert len(lines(tmp_path / "a.jsonl")) == found.num_pools
    assert {line["score"] for line in lines(scores) if line["query"] in found.refused} == {0.0}


def test_a_model_whose_requests_are_all_refused_ends_the_call(labelled: Path, tmp_path: Path) -> None:
    """Though another one has answered."""
    out = tmp_path / "a.jsonl"
    with endpoint(knows(read_pools(labelled, "train"))) as at:
        asked(labelled, out, at)
    with endpoint(lambda body, number: Response(status=400, body=b"max_tokens")) as at:
        with pytest.raises(EndpointError, match="answers 400"):
            label_ask(labelled, out, url=at.url, model="other", number=10, requests_per_minute=FAST)
        assert len(at.requests) == 4  # those that are sent at a time


def test_answers_about_other_splits_are_left_out_of_an_import(labelled: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    with endpoint(knows(read_pools(labelled, "train", "test"))) as at:
        found = asked(labelled, out, at)
        of_test = asked(labelled, out, at, split="test", scores=tmp_path / "scores.jsonl")
    imported = label_import(out, labelled, tmp_path / "new")
    assert imported.num_elsewhere == of_test.num_pools
    (source,) = imported.soft_labels
    assert source.num_pools + source.num_checked == found.num_pools


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (Response(status=401, body=b'{"error": "no such key: sk-secret"}'), r"401 .*\*\*\*.*--key-variable"),
        (Response(status=429, headers={"Retry-After": "86400"}), "asks to wait 86400 s"),
        (Response(status=503), "503 .*Try later, .* check --url"),
        (Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), "302"),
        (Response(body=b"<html>"), "no chat completion .*Check --url"),
        (Response(body=b"x" * 2**21), "more than 1048576 bytes"),
    ],
)
def test_an_endpoint_that_refuses_ends_the_call_without_showing_the_key(
    labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, response: Response, message: str
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret")
    with endpoint(lambda body, number: response) as at, pytest.raises(EndpointError, match=message) as error:
        asked(labelled, tmp_path / "a.jsonl", at, key_variable="MY_KEY")
    assert set(at.keys) == {"Bearer sk-secret"}
    assert "sk-secret" not in str(error.value) + (tmp_path / "a.jsonl").read_text()


def test_what_was_answered_before_a_failure_or_a_crash_isnt_asked_again(labelled: Path, tmp_path: Path) -> None:
    out, clear, number = tmp_path / "a.jsonl", knows(read_pools(labelled, "train")), count()
    refuse = Response(status=401)
    with endpoint(lambda body, _: clear(body, 0) if next(number) < 7 else refuse) as at, pytest.raises(EndpointError):
        asked(labelled, out, at)
    assert len(lines(out)) == 7
    out.write_bytes(out.read_bytes()[:-20])  # a crash in the middle of a line
    with endpoint(clear) as at:
        found = asked(labelled, out, at)
        assert found.num_new == len(at.requests) == found.num_pools - 6
    assert len({line["request"] for line in lines(out)}) == len(lines(out)) == found.num_pools
    out.write_text("{}")
    with endpoint(clear) as at, pytest.raises(DataError, match="no answer of a model"):
        asked(labelled, out, at)
    assert out.read_text() == "{}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "http://example.org/v1"}, "unencrypted"),
        ({"url": "https://user:secret@example.org/v1"}, "not valid"),
        ({"requests_per_minute": 0}, "above 0"),
        ({"out": "answers.csv"}, "jsonl"),
        ({"out": "same.jsonl", "scores": "./same.jsonl"}, "both the answers and the scores"),
    ],
)
def test_invalid_arguments_are_refused_before_anything_is_sent(
    labelled: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    given = {"out": tmp_path / "a.jsonl", "url": "http://127.0.0.1:1/v1", "model": "m", **options}
    with pytest.raises(SettingError, match=message) as error:
        label_ask(labelled, **given)
    assert "secret" not in str(error.value)


def test_the_command_line_says_what_is_sent_and_needs_a_yes(labelled: Path, tmp_path: Path, icalib: Command) -> None:
    with endpoint(knows(read_pools(labelled, "train"))) as at:
        command = ("label", "ask", labelled, "--url", at.url, "--model", "m", "--number", 10, "--out")
        options = (tmp_path / "a.jsonl", "--requests-per-minute", FAST, "--price-per-million-tokens", 1000)
        code, _, err = icalib(*command, *options)
        assert (code, at.requests) == (2, [])
        assert "--yes" in err
        assert "Their texts go to http://127.0.0.1" in err
        code, _, err = icalib(*command, *options, "--yes")
        assert (code, len(at.requests) > 30) == (0, True)
        assert "95 % interval" in err


def test_answers_become_soft_labels_and_never_labels(labelled: Path, tmp_path: Path) -> None:
    pools, people = read_pools(labelled, "train"), people_labelled(labelled)
    wrong = {pool.pool_id for pool in people[:6]}
    with endpoint(knows(pools, is_wrong=lambda pool: pool.pool_id in wrong)) as at:
        asked(labelled, tmp_path / "a.jsonl", at)
    found = label_import(tmp_path / "a.jsonl", labelled, tmp_path / "new")
    (source,), new = found.soft_labels, tmp_path / "new"
    assert (source.annotator, source.num_pools, source.num_checked, source.num_right) == (
        *("llm:m", 10, len(people)),
        len(people) - 6,
    )
    assert (found.num_annotated, found.num_labelled, found.agreement, found.num_known) == (0, len(people), None, 0)
    assert read_pool_set(new).soft_labels == (source,)
    assert people_labelled(new) == people
    assert [pool.label for pool in read_pools(new)] == [pool.label for pool in read_pools(labelled)]
    rows = read_parquet(new / SOFT_LABELS_FILE).to_pylist()
    gold = {pool.pool_id: pool.label for pool in pools}
    assert {row["pool_id"] for row in rows}.isdisjoint({pool.pool_id for pool in people})
    assert [row["candidate"] for row in rows] == [gold[row["pool_id"]] for row in rows]
    assert {row["precision"] for row in rows} == {source.precision}
    assert 0 < source.precision < source.num_right / source.num_checked + 0.02
    assert sum(map(by_model, read_annotations(new))) == len(people) + 10
    assert set(label_next(data=new, out=tmp_path / "next.csv", number=999).pool_ids) >= {row["pool_id"] for row in rows}


def test_soft_labels_dont_depend_on_the_order_of_answers(labelled: Path, tmp_path: Path) -> None:
    """Several requests are in flight, so that answers come in another order with each try."""
    with endpoint(knows(read_pools(labelled, "train"))) as at:
        asked(labelled, tmp_path / "a.jsonl", at)
    lines = (tmp_path / "a.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "b.jsonl").write_text("".join(reversed(lines)))
    for name in ("a", "b"):
        label_import(tmp_path / f"{name}.jsonl", labelled, tmp_path / name)
    one, other = ((tmp_path / name / SOFT_LABELS_FILE).read_bytes() for name in ("a", "b"))
    assert one == other


def test_a_later_label_of_people_replaces_a_soft_one_and_measures_the_model(labelled: Path, tmp_path: Path) -> None:
    pools = read_pools(labelled, "train")
    with endpoint(knows(pools)) as at:
        asked(labelled, tmp_path / "a.jsonl", at)
    (before,) = label_import(tmp_path / "a.jsonl", labelled, tmp_path / "soft").soft_labels
    wrong = read_parquet(tmp_path / "soft" / SOFT_LABELS_FILE)["pool_id"].to_pylist()[:2]
    right = {pool.pool_id: [(pool.label + (pool.pool_id in wrong)) % 4] for pool in pools}
    batch = label_next(data=tmp_path / "soft", out=tmp_path / "batch.csv", number=999)
    filled = filled_table(batch.path, tmp_path / "filled.csv", right.__getitem__, zeros=True)
    (after,) = label_import(filled, tmp_path / "soft", tmp_path / "both").soft_labels
    assert (after.num_pools, after.num_checked, after.num_right) == (0, before.num_checked + 10, before.num_right + 8)
    assert read_parquet(tmp_path / "both" / SOFT_LABELS_FILE).num_rows == 0


def test_too_few_labels_and_a_guessing_model_are_refused(tiny_pools: Path, labelled: Path, tmp_path: Path) -> None:
    pools = read_pools(tiny_pools, "train")
    with endpoint(knows(pools)) as at:
        asked(tiny_pools, tmp_path / "few.jsonl", at)
    with pytest.raises(DataError, match=r"llm:m named a candidate of \d+ labelled pools.*Label more pools"):
        label_import(tmp_path / "few.jsonl", tiny_pools, tmp_path / "new")
    with endpoint(knows(pools, is_wrong=lambda pool: True)) as at:
        asked(labelled, tmp_path / "wrong.jsonl", at)
    with pytest.raises(DataError, match="may be no better than chance"):
        label_import(tmp_path / "wrong.jsonl", labelled, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_answers_about_test_pools_are_a_judges_scores_only(labelled: Path, tmp_path: Path) -> None:
    pools = read_pools(labelled, "test")
    with endpoint(knows(pools)) as at:
        label_ask(
            labelled, tmp_path / "a.jsonl", url=at.url, model="m", split="test", scores=tmp_path / "s.jsonl",
            requests_per_minute=FAST,
        )  # fmt: skip
    scores = read_scores(tmp_path / "s.jsonl", Columns())
    assert scores == {
        pool.pool_id: {str(index): float(index == pool.label) for index in range(len(pool.candidates))}
        for pool in pools
    }
    with pytest.raises(DataError, match=r"answers of a language model \(llm:m\)"):
        Judgements.read(cast("Any", None), labelled, tmp_path / "a.jsonl", tmp_path / "s.jsonl", Columns())
    with pytest.raises(DataError, match="no training pool"):
        label_import(tmp_path / "a.jsonl", labelled, tmp_path / "new")


def test_pools_with_the_same_texts_are_all_answered(labelled: Path, tmp_path: Path) -> None:
    folder, out = Path(shutil.copytree(labelled, tmp_path / "same")), tmp_path / "a.jsonl"
    table = pq.read_table(folder / "test.parquet").take([0] * 20)
    names = pa.array([f"same-{number}" for number in range(20)])
    pq.write_table(table.set_column(0, table.schema.field(0), names), folder / "test.parquet")
    seal(folder)
    with endpoint(knows(read_pools(folder, "test"))) as at:
        for number in (1, 20, 20):
            asked(folder, out, at, number, split="test")
            assert len(lines(out)) == number
        assert len(at.requests) == 20
    assert {line["pool_id"] for line in lines(out)} == set(names.to_pylist())
