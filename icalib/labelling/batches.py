"""Batches of pools for annotators: files that they fill in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from icalib.core.errors import SettingError
from icalib.core.files import atomic_write, json_bytes
from icalib.core.storage import push
from icalib.data.schema import Pool, PoolSet
from icalib.labelling.label_studio import labelling_config, task
from icalib.labelling.table import table_text

By = Literal["random", "uncertain", "diverse", "mixed"]
"""How pools are chosen: at random, where the model is uncertain, far from the labelled ones, or half of both."""
WAYS: tuple[By, ...] = ("random", "uncertain", "diverse", "mixed")


@dataclass(frozen=True)
class Batch:
    """Pools that were chosen for annotation, in the file `path`.

    Args:
        path: Label Studio's tasks or a CSV.
        config: Label Studio's labelling configuration; None for a CSV.
        pool_ids: the pools, in the order in which they were chosen.
        num_dialogues, num_unlabelled: of the batch; and how many pools it was chosen among.
        how: how they were chosen, in a phrase.
        data: the pool folder that they are from.
    """

    path: Path
    config: Path | None
    pool_ids: tuple[str, ...]
    num_dialogues: int
    num_unlabelled: int
    how: str
    data: Path


def check_out(out: Path) -> None:
    """Refuse a file that exists, which may have labels, and a format that isn't known."""
    if out.suffix not in (".json", ".csv"):
        raise SettingError(f"{out}: the name ends in {out.suffix!r}. Name a .json file (Label Studio) or a .csv file.")
    for path in (out, out.with_suffix(".xml")):
        if path.exists() and (path == out or out.suffix == ".json"):
            raise SettingError(f"{path} exists already and may have labels. Choose another name, or remove it first.")


def write_batch(out: Path, pools: Sequence[Pool], pool_set: PoolSet) -> Path | None:
    """Write a batch, and the labelling configuration of Label Studio's tasks, whose path is returned."""
    config = None
    if out.suffix == ".json":
        config = out.with_suffix(".xml")
        with atomic_write(config) as temporary:
            temporary.write_text(labelling_config(pool_set.context_turns, pool_set.intents), encoding="utf-8")
        push(config)
        content = json_bytes([task(pool, pool_set.context_turns) for pool in pools])
    else:
        content = table_text(pools).encode("utf-8-sig")  # spreadsheets know by the mark that it is UTF-8
    with atomic_write(out) as temporary:
        temporary.write_bytes(content)
    push(out)
    return config
