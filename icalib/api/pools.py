"""`icalib.prepare`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from icalib.api.options import Place, PlaceKeywords
from icalib.api.session import Session, session
from icalib.core.storage import local_path, location

if TYPE_CHECKING:
    from icalib.data.schema import PoolSet


class PoolKeywords(TypedDict, total=False):
    """What decides a pool folder's content besides its source; `icalib.data.settings.PrepareSettings` explains each."""

    protocol: str | None
    labelled: float | None
    format: str | None
    speakers: Mapping[str, Literal["user", "agent", "skip"]]
    columns: Mapping[str, str]
    map_intents: str | Path | Mapping[str, Any]
    num_candidates: int
    negative_sampler: str
    context_turns: int
    min_context: int
    seed: int
    limit: int | None
    unanswerable: float
    skip_bad: bool


class PrepareKeywords(PoolKeywords, PlaceKeywords, total=False):
    """What `prepare` takes besides its first arguments."""

    logs: str | Path | None
    """Dialogues outside the pools, for post-training; they may contain those of the source."""
    fresh: bool
    """Replace a pool folder made from other inputs."""


def prepare(source: str | Path, out: str | Path, **options: Unpack[PrepareKeywords]) -> PoolSet:
    """Turn dialogues into pools: a context, its right response, and wrong ones mined from other dialogues.

        icalib.prepare("dialogues.jsonl", "pools/mine", executor="local")

    The same call again returns the pool folder as it is.

    `source` has dialogues or ready pools: a file or folder of a format of docs/data.md, or .gz. A DataError names an
    invalid record; a SettingError says that an option is invalid, or that `out` contains something else.
    """
    settings = {name: value for name, value in options.items() if name in PoolKeywords.__annotations__}
    logs, fresh = options.get("logs"), options.get("fresh", False)
    with session(Place.of(options)) as active:
        where = local_path(source), local_path(out)
        return prepare_pools(active, *where, settings, logs=local_path(logs) if logs else None, fresh=fresh)


def preview(source: str | Path, **options: Unpack[PoolKeywords]) -> list[str]:
    """Return lines that show what `prepare` understands of the first records of a source; nothing is written."""
    from icalib.core.component import validated
    from icalib.data.preview import preview as lines
    from icalib.data.settings import PrepareSettings

    return list(lines(local_path(source), validated(PrepareSettings, options)))


def prepare_pools(
    active: Session,
    source: Path,
    out: Path,
    settings: Mapping[str, Any],
    *,
    logs: Path | None = None,
    fresh: bool = False,
) -> PoolSet:
    """Prepare a pool folder with its stages shown; the settings are `PoolKeywords`."""
    from icalib.core.component import validated
    from icalib.core.events import Progress, StageFinished, StageStarted
    from icalib.data.prepare import PrepareSettings
    from icalib.data.prepare import prepare as make_pools

    progress, started = active.progress, time.monotonic()
    current, since = "", started

    def begin(stage: str) -> None:
        nonlocal current, since
        if current:
            seconds = time.monotonic() - since
            progress.show(StageFinished(current, current, 0, "", out, seconds, reused=False))
        if stage:
            progress.show(StageStarted(stage, reused=False))
        current, since = stage, time.monotonic()

    def on_progress(stage: str, done: int, total: int | None) -> None:
        if stage != current:
            begin(stage)
        progress.show(Progress(stage, done, total))

    pool_set = make_pools(
        source,
        out,
        validated(PrepareSettings, settings),
        logs=logs,
        fresh=fresh,
        parallel_map=active.parallel_map,
        progress=on_progress,
        note=active.message,
    )
    begin("")
    counts = ", ".join(f"{number} {split}" for split, number in pool_set.num_pools.items())
    logged = f", {pool_set.num_logs} dialogues of logs" if pool_set.num_logs else ""
    active.message(
        f"{location(out)}: {counts} pools, {len(pool_set.intents)} intents{logged}, {time.monotonic() - started:.0f} s"
    )
    return pool_set
