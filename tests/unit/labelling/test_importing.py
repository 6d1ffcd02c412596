from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.annotators import exported, filled_table
from helpers.pool_folders import pools_digest, read_pools

from icalib import label_import, label_next
from icalib.core.errors import DataError, SettingError
from icalib.data.pools import read_column, read_pool_set
from icalib.data.schema import NONE_RIGHT, UNKNOWN_LABEL, Pool
from icalib.data.selection import Selection
from icalib.data.splits import label_order
from icalib.labelling.annotations import read_annotations
from icalib.labelling.batches import write_batch
from icalib.labelling.choose import labelled_rows
from icalib.labelling.relabelled import label_order_after


def by_id(folder: Path) -> dict[str, Pool]:
    return {pool.pool_id: pool for pool in read_pools(folder, "train")}


def labelled_ids(folder: Path) -> list[str]:
    ids = [pool.pool_id for pool in read_pools(folder, "train")]
    rows = labelled_rows(read_pool_set(folder), read_column(folder, "train", "label_order"))
    return [ids[row] for row in rows]


@pytest.fixture
def batch(tiny_pools: Path, tmp_path: Path) -> Path:
    return label_next(data=tiny_pools, out=tmp_path / "batch.csv", number=6).path


@pytest.fixture
def tasks(tiny_pools: Path, tmp_path: Path) -> Path:
    return label_next(data=tiny_pools, out=tmp_path / "batch.json", number=6).path


def batch_ids(tasks: Path) -> list[str]:
    return [task["data"]["pool_id"] for task in json.loads(tasks.read_text())]


def test_a_table_comes_back_as_labels_that_come_first_after_earlier_ones(
    tiny_pools: Path, batch: Path, tasks: Path, tmp_path: Path
) -> None:
    ids = batch_ids(tasks)
    right = {ids[0]: [2], ids[1]: [0, 3], ids[2]: []}
    filled = filled_table(batch, tmp_path / "filled.csv", lambda pool_id: right.get(pool_id, [1]), zeros=True)
    found = label_import(filled, tiny_pools, tmp_path / "new")
    before, after, pool_set = by_id(tiny_pools), by_id(tmp_path / "new"), read_pool_set(tmp_path / "new")
    assert (after[ids[0]].label, after[ids[0]].also_right) == (2, ())
    assert (after[ids[1]].label, after[ids[1]].also_right) == (0, (3,))
    assert after[ids[2]].label == NONE_RIGHT
    assert labelled_ids(tmp_path / "new") == [*labelled_ids(tiny_pools), *ids]
    assert (found.num_annotated, found.num_labelled, found.conflicts, found.unfinished) == (
        6,
        len(before) // 4 + 7,
        (),
        (),
    )
    others = set(before) - set(ids)
    same = {"label", "also_right", "context", "candidates"}
    assert [after[one].model_dump(include=same) for one in others] == [
        before[one].model_dump(include=same) for one in others
    ]
    orders = sorted(pool.label_order for pool in after.values())
    num_labelled = found.num_labelled  # others follow after a gap
    assert orders == [*range(num_labelled), *range(num_labelled + 1, len(before) + 1)]
    assert pool_set.digest == pools_digest(tmp_path / "new") != read_pool_set(tiny_pools).digest
    assert pool_set.num_unanswerable == {"train": 1}
    assert pool_set.num_several_right == {"train": 1}
    assert pool_set.mean_right == {"train": len(before) / (len(before) - 1)}
    assert read_pools(tmp_path / "new", "validation", "test") == read_pools(tiny_pools, "validation", "test")


def test_a_file_says_how_many_labels_were_right(tiny_pools: Path, batch: Path, tasks: Path, tmp_path: Path) -> None:
    before, ids = by_id(tiny_pools), batch_ids(tasks)
    wrong = (before[ids[0]].label + 1) % 2
    right = {ids[0]: [wrong], ids[1]: [], ids[2]: [before[ids[2]].label, wrong]}
    filled = filled_table(batch, tmp_path / "filled.csv", lambda one: right.get(one, [before[one].label]), zeros=True)
    first = label_import(filled, tiny_pools, tmp_path / "new")
    assert (first.num_confirmed, first.num_known) == (4, 6)
    again = label_import(filled, tmp_path / "new", tmp_path / "newer")
    assert again.num_known == 0  # those labels are the annotators' own


def test_label_studios_export_keeps_who_when_and_intents(tiny_pools: Path, tasks: Path, tmp_path: Path) -> None:
    before, ids = by_id(tiny_pools), batch_ids(tasks)
    gold: dict[str, Any] = {pool_id: before[pool_id].right for pool_id in ids}
    export = exported(tasks, tmp_path / "export.json", {"ann@example.org": gold.__getitem__}, {1: ["new intent"]})
    assert label_import(export, tiny_pools, tmp_path / "new").new_intents == ("new intent",)
    (first, *_) = annotations = read_annotations(tmp_path / "new")
    assert [one.pool_id for one in annotations] == ids
    assert (first.annotator, first.when) == ("ann@example.org", datetime(2026, 1, 1, 10, 0, 0, 250000, UTC))
    assert first.right == gold[ids[0]]
    after = by_id(tmp_path / "new")
    assert after[ids[0]].label == before[ids[0]].label
    assert after[ids[0]].context[0].intents == ("new intent",)
    assert after[ids[0]].context[1:] == before[ids[0]].context[1:]  # not annotated, so they keep theirs
    assert "new intent" in read_pool_set(tmp_path / "new").intents


def test_a_suggestion_is_no_annotation_and_skipped_tasks_are_unfinished(
    tiny_pools: Path, tasks: Path, tmp_path: Path
) -> None:
    export = exported(tasks, tmp_path / "export.json", {"ann": lambda pool_id: [0]})
    records = json.loads(export.read_text())
    records[0] |= {"annotations": [], "predictions": [{"result": records[0]["annotations"][0]["result"]}]}
    records[1]["annotations"][0]["was_cancelled"] = True
    records[2]["annotations"][0]["result"] = []
    export.write_text(json.dumps(records))
    found = label_import(export, tiny_pools, tmp_path / "new")
    assert found.unfinished == tuple(batch_ids(tasks)[:3])
    assert found.num_annotated == 3


def test_annotators_who_disagree_give_no_label(tiny_pools: Path, tasks: Path, tmp_path: Path) -> None:
    ids, before = batch_ids(tasks), by_id(tiny_pools)
    answers = {"a": lambda pool_id: [0], "b": lambda pool_id: [1 if pool_id == ids[0] else 0]}
    found = label_import(exported(tasks, tmp_path / "export.json", answers), tiny_pools, tmp_path / "new")
    assert found.conflicts == (ids[0],)
    assert found.agreement is not None
    assert found.agreement.num_pools == 6
    # 6 of 24 candidates are right for each annotator, and they disagree on 2
    assert found.agreement.value == pytest.approx(1 - 2 / 24 / (2 * 12 * 36 / (48 * 47)))
    assert by_id(tmp_path / "new")[ids[0]].label == before[ids[0]].label  # gold of the corpus, unlabelled as before
    assert ids[0] not in labelled_ids(tmp_path / "new")
    assert len(read_annotations(tmp_path / "new")) == 12


def test_disagreements_say_nothing_of_the_label_before_whether_someone_confirms_it_or_not(
    tiny_pools: Path, tasks: Path, tmp_path: Path
) -> None:
    before, ids = by_id(tiny_pools), batch_ids(tasks)
    steps = {ids[0]: (0, 1), ids[1]: (1, 2)}
    answers = {
        name: lambda one, place=place: [(before[one].label + steps.get(one, (0, 0))[place]) % 4]
        for place, name in enumerate("ab")
    }
    found = label_import(exported(tasks, tmp_path / "export.json", answers), tiny_pools, tmp_path / "new")
    assert (found.conflicts, found.num_confirmed, found.num_known) == (tuple(ids[:2]), 4, 4)


@pytest.mark.parametrize("field", [{"completed_by": None}, {"completed_by": None, "id": 7}, {"completed_by": {}}])
def test_answers_without_an_annotator_count_as_different_ones(
    tiny_pools: Path, tasks: Path, tmp_path: Path, field: dict[str, Any]
) -> None:
    ids = batch_ids(tasks)
    answers = {"a": lambda pool_id: [0], "b": lambda pool_id: [1 if pool_id == ids[0] else 0]}
    export = exported(tasks, tmp_path / "export.json", answers)
    records = json.loads(export.read_text())
    for record in records:
        for number, one in enumerate(record["annotations"]):
            one |= field | ({"id": field["id"] + number} if "id" in field else {})
    export.write_text(json.dumps(records))
    found = label_import(export, tiny_pools, tmp_path / "new")
    assert found.conflicts == (ids[0],)
    assert found.agreement is not None
    assert found.agreement.num_pools == 6
    assert label_import(export, tmp_path / "new", tmp_path / "again").agreement == found.agreement


def test_a_label_that_all_annotators_reject_is_taken_away(tiny_pools: Path, tmp_path: Path) -> None:
    """In whatever number of files they say so."""
    before, ids = by_id(tiny_pools), labelled_ids(tiny_pools)[:3]
    batch = tmp_path / "batch.csv"
    write_batch(batch, [before[one] for one in ids], read_pool_set(tiny_pools))
    one, both = tmp_path / "one", tmp_path / "both"
    files = [
        filled_table(
            batch, tmp_path / f"{name}.csv", lambda pool_id, step=step: [(before[pool_id].label + step) % 4], name
        )
        for step, name in enumerate(("ann", "bob"), 1)
    ]
    (head, *first), (_, *second) = (file.read_text().splitlines() for file in files)
    (tmp_path / "together.csv").write_text("\n".join([head, *first, *second]))
    label_import(files[0], tiny_pools, one)
    label_import(files[1], one, tmp_path / "two")
    found = label_import(tmp_path / "together.csv", tiny_pools, both)
    assert (found.num_known, len(found.conflicts)) == (0, 3)
    assert by_id(both) == by_id(tmp_path / "two")
    assert {by_id(both)[one].label for one in ids} == {UNKNOWN_LABEL}
    assert labelled_ids(both) == labelled_ids(tiny_pools)[3:]


def test_pools_with_intents_still_come_first_when_labels_are_drawn() -> None:
    order = label_order(has_intents=[1] * 4 + [0] * 6, label_known=[1] * 10, seed=1)
    rows = np.argsort(order).tolist()  # four with intents, then six without
    found = label_order_after(order, [rows[0], rows[6]], {rows[1], rows[6]})
    assert found == {
        rows[0]: 0,
        rows[6]: 1,
        rows[2]: 3,
        rows[3]: 4,
        **{rows[n]: i for i, n in enumerate((4, 5, 7, 8, 9), 6)},
    }
    again = np.array([found.get(row, -1) for row in range(10)])
    for seed in range(9):
        drawn = {
            n: set(Selection(labelled_fraction=n / 10, label_seed=seed).rows("train", "labelled", again).tolist())
            for n in (2, 4, 9, 10)
        }
        assert drawn[2] == {rows[0], rows[6]}  # what annotators said comes before what no one checked
        assert drawn[4] == {rows[0], rows[6], rows[2], rows[3]}
        assert drawn[9] == drawn[10] == set(rows) - {rows[1]}  # forgotten, so that it never becomes labelled


def test_pools_none_of_whose_labels_was_known_get_an_order_of_those_that_are() -> None:
    assert label_order_after(np.full(5, -1), [3, 1], {1, 3}) == {3: 0, 1: 1}


def test_of_one_annotators_tables_the_last_import_counts_and_what_it_replaces_is_counted(
    tiny_pools: Path, batch: Path, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    found = label_import(filled_table(batch, tmp_path / "filled.csv", lambda pool_id: [0], ""), tiny_pools, one)
    assert (found.annotators, found.num_replaced, found.num_older) == (("filled",), 0, 0)
    other = tmp_path / "other" / "filled.csv"
    other.parent.mkdir()
    filled_table(batch, other, lambda pool_id: [1], "")
    os.utime(other, (0, 0))  # as an archive may have it
    found = label_import(other, one, two)
    assert (found.num_annotated, found.num_replaced, found.num_older) == (6, 6, 0)
    assert {annotation.right for annotation in read_annotations(two)} == {(1,)}


def test_an_answer_that_is_older_than_the_folders_is_counted_as_left_out(
    tiny_pools: Path, tasks: Path, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    label_import(exported(tasks, tmp_path / "new.json", {"ann": lambda pool_id: [0]}), tiny_pools, one)
    old = exported(tasks, tmp_path / "old.json", {"ann": lambda pool_id: [1]})
    old.write_text(old.read_text().replace("2026-01-01", "2025-01-01"))
    found = label_import(old, one, two)
    assert (found.num_replaced, found.num_older) == (0, 6)
    assert {annotation.right for annotation in read_annotations(two)} == {(0,)}


def test_later_files_add_to_earlier_annotations(tiny_pools: Path, batch: Path, tasks: Path, tmp_path: Path) -> None:
    ids = batch_ids(tasks)
    one, two, three = tmp_path / "one", tmp_path / "two", tmp_path / "three"
    label_import(filled_table(batch, tmp_path / "a.csv", lambda pool_id: [0], "a"), tiny_pools, one)
    later = filled_table(batch, tmp_path / "b.csv", lambda pool_id: [0 if pool_id != ids[0] else 1], "b")
    found = label_import(later, one, two)
    assert found.conflicts == (ids[0],)
    assert by_id(two)[ids[0]].label == UNKNOWN_LABEL  # only the annotators had labelled it
    assert by_id(two)[ids[0]].label_order == -1
    assert labelled_ids(two) == [*labelled_ids(tiny_pools), *ids[1:]]
    corrected = filled_table(batch, tmp_path / "a2.csv", lambda pool_id: [1 if pool_id == ids[0] else 0], "a")
    assert label_import(corrected, two, three).conflicts == ()  # the same annotator's later answer counts
    assert by_id(three)[ids[0]].label == 1
    assert label_next(data=three, out=tmp_path / "next.csv", number=100).pool_ids
    assert not set(label_next(data=three, out=tmp_path / "n.csv", number=100).pool_ids) & set(ids)


def test_a_file_that_would_change_no_label_is_refused(tiny_pools: Path, tasks: Path, tmp_path: Path) -> None:
    answers = {"a": lambda pool_id: [0], "b": lambda pool_id: [1]}
    export = exported(tasks, tmp_path / "export.json", answers)
    with pytest.raises(DataError, match="the annotators disagree on all 6 pools with a finished answer"):
        label_import(export, tiny_pools, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_spreadsheets_may_change_separators_and_white_space(tiny_pools: Path, batch: Path, tmp_path: Path) -> None:
    filled = filled_table(batch, tmp_path / "filled.csv", lambda pool_id: [1])
    rows = list(csv.reader(filled.open(newline="")))
    with (tmp_path / "excel.csv").open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, delimiter=";").writerows([[cell.replace(" ", "  ") for cell in row] for row in rows])
    assert label_import(tmp_path / "excel.csv", tiny_pools, tmp_path / "new").num_annotated == 6


def test_marks_may_be_numbers_as_pandas_writes_them(tiny_pools: Path, batch: Path, tmp_path: Path) -> None:
    filled = filled_table(batch, tmp_path / "filled.csv", lambda pool_id: [1])
    frame = pd.read_csv(filled)
    assert frame["right"].dtype == float
    frame.to_csv(tmp_path / "pandas.csv", index=False)
    assert label_import(tmp_path / "pandas.csv", tiny_pools, tmp_path / "new").num_annotated == 6


def intents_of_utterance_9(record: dict[str, Any]) -> None:
    record["annotations"][0]["result"].append({"from_name": "intents9", "value": {"choices": ["PA"]}})


def chosen(record: dict[str, Any]) -> list[str]:
    return record["annotations"][0]["result"][0]["value"]["choices"]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda record: record["data"].update(pool_id="elsewhere#1"), "has no training pool 'elsewhere#1'"),
        (lambda record: record["data"]["candidates"].reverse(), "are not those of|found the choice"),
        (lambda record: chosen(record).append("none of these"), "'none of these' together with a candidate"),
        (lambda record: record["data"].pop("pool_id"), "data.pool_id.*it is missing"),
        (intents_of_utterance_9, "the task of pool '.*' has intents9, but 3 utterances"),
        (lambda record: record.update(right=record.pop("annotations")), "unknown format.*not JSON-MIN"),
    ],
)
def test_what_does_not_fit_the_pools_is_refused_by_record(
    tiny_pools: Path, tasks: Path, tmp_path: Path, damage: Callable[[dict[str, Any]], object], said: str
) -> None:
    export = exported(tasks, tmp_path / "export.json", {"a": lambda pool_id: [0]})
    records = json.loads(export.read_text())
    damage(records[2])
    export.write_text(json.dumps(records))  # one line, as tools write it
    with pytest.raises(DataError, match=said) as refused:
        label_import(export, tiny_pools, tmp_path / "new")
    assert f"{export}, line 1, record 3" in str(refused.value)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("row", "column", "value", "said"),
    [
        (3, 4, "maybe", "field `right`: found 'maybe', expected 1, 0 or nothing"),
        (3, 2, "1", "is in two rows"),
        (3, 3, "another text", "are not those of"),
    ],
)
def test_a_table_is_refused_by_line(
    tiny_pools: Path, batch: Path, tmp_path: Path, row: int, column: int, value: str, said: str
) -> None:
    filled = filled_table(batch, tmp_path / "filled.csv", lambda pool_id: [0])
    rows = list(csv.reader(filled.open(newline="")))
    rows[row][column] = value
    with filled.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    with pytest.raises(DataError, match=said) as refused:
        label_import(filled, tiny_pools, tmp_path / "new")
    assert str(filled) in str(refused.value)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("content", ["", "[", "[]", "{}", '{"id": 1}', "[1, 2]", "\xff\xfe", "[" * 3000])
def test_files_that_are_no_export_are_refused(tiny_pools: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "export.json").write_bytes(content.encode("latin1"))
    with pytest.raises(DataError, match="export"):
        label_import(tmp_path / "export.json", tiny_pools, tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["export.json"]


def test_a_batch_that_nobody_filled_in_and_folders_that_exist_are_refused(
    tiny_pools: Path, batch: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="no pool has a finished answer"):
        label_import(batch, tiny_pools, tmp_path / "new")
    with pytest.raises(SettingError, match="exists and is not an empty folder"):
        label_import(batch, tiny_pools, tiny_pools)
    with pytest.raises(SettingError, match="exists already and may have labels"):
        label_next(data=tiny_pools, out=batch)
