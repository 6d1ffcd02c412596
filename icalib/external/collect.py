"""Scores of a service for the pools of a folder, kept pool by pool so that an interrupted run resumes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from icalib.core.errors import DamagedFileError, SettingError
from icalib.core.files import read_json, write_json
from icalib.core.storage import location
from icalib.data.schema import Pool
from icalib.external.endpoint import Endpoint, query_text

SCORES = "scores.jsonl"
_INPUTS = "endpoint.json"


def collect_scores(
    endpoint: Endpoint,
    pools: Sequence[Pool],
    folder: Path,
    inputs: dict[str, Any],
    progress: Callable[[int, int], None],
) -> Path:
    """Ask a service for the scores of all pools, and return their file: a row with lists for each pool.

    Args:
        endpoint: the service.
        pools: labelled pools, with or without a right candidate.
        folder: gets `scores.jsonl`; pools that it has already are not asked for again.
        inputs: what the scores depend on; those of other inputs are not mixed with these.
        progress: receives the number of pools so far, and of all.

    Raises:
        ServiceError: see `Endpoint.scores`; what was scored before is kept.
        SettingError: the folder has scores of another service or of other pools.
        DamagedFileError: the scores in the folder can't be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _check_inputs(folder / _INPUTS, inputs)
    path = folder / SCORES
    known = _known(path)
    with path.open("a", encoding="utf-8") as file:
        for number, pool in enumerate(pools, 1):
            if pool.pool_id not in known:
                score = endpoint.scores(query_text(pool), pool.candidates)
                # one label for each candidate: in a score file an index can't say that none is right
                label = [int(index in pool.right) for index in range(len(pool.candidates))]
                row = {"pool_id": pool.pool_id, "scores": score.tolist(), "label": label}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                file.flush()
            progress(number, len(pools))
    return path


def _check_inputs(path: Path, inputs: dict[str, Any]) -> None:
    if not path.is_file():
        write_json(path, inputs)
        return
    found = dict(read_json(path))
    if different := [name for name in inputs if found.get(name) != inputs[name]]:
        raise SettingError(
            f"{location(path.parent)} has scores of another {different[0]}: found {found.get(different[0])}, expected "
            f"{inputs[different[0]]}. Choose another --out, or remove that folder."
        )


def _known(path: Path) -> set[str]:
    """Return the pools that are scored; an incomplete last row is removed."""
    if not path.is_file():
        return set()
    known: set[str] = set()
    complete = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            try:
                known.add(json.loads(line)["pool_id"])
            except (ValueError, LookupError, TypeError, RecursionError) as error:
                cure = "Remove the file; the service is then asked for all pools again."
                raise DamagedFileError(path, f"has a line that can't be read: {number}", cure) from error
            complete += len(line)
    with path.open("rb+") as file:
        file.truncate(complete)
    return known
