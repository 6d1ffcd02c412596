"""Annotators who fill in files of `icalib label next` without looking."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Right = Callable[[str], Sequence[int]]
"""Indices of the right candidates of the pool with an id."""


def filled_table(path: Path, out: Path, right: Right, annotator: str = "ann", *, zeros: bool = False) -> Path:
    """A CSV batch with the right candidates marked by 1, and others by nothing or 0."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        is_right = int(row["candidate"]) - 1 in right(row["pool_id"])
        row |= {"right": "1" if is_right else "0" * zeros, "annotator": annotator}
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return out


def choices(task: Mapping[str, Any], right: Sequence[int], intents: Mapping[int, Sequence[str]] | None = None) -> Any:
    """The `result` of an annotation in Label Studio; intents by the number of an utterance, from 1."""
    values = [task["data"]["choices"][index]["value"] for index in right or [-1]]
    given = {"right": values, **{f"intents{turn}": [*names] for turn, names in (intents or {}).items()}}
    return [
        {"from_name": name, "to_name": name.replace("intents", "turn"), "type": "choices", "value": {"choices": chosen}}
        for name, chosen in given.items()
    ]


def exported(
    path: Path, out: Path, answers: Mapping[str, Right], intents: Mapping[int, Sequence[str]] | None = None
) -> Path:
    """Label Studio's JSON export of a batch that some annotators, by their e-mail addresses, have answered."""
    tasks = json.loads(path.read_text())
    for task in tasks:
        task["annotations"] = [
            {
                "completed_by": {"id": number, "email": annotator},
                "updated_at": f"2026-01-0{number}T10:00:00.250000Z",
                "was_cancelled": False,
                "result": choices(task, right(task["data"]["pool_id"]), intents),
            }
            for number, (annotator, right) in enumerate(answers.items(), 1)
        ]
    out.write_text(json.dumps(tasks))
    return out
