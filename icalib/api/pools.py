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
    """What decides a pool folder's content besides its source."""

    protocol: str | None
    """Make pools as a paper did: icast, gpf (GPF-BERT) or pg (PG-DRR). It sets candidates, negatives, contexts and
    more; other options can't contradict what the paper states."""
    labelled: float | None
    """Default labelled fraction of the training pools."""
    format: str | None
    """One of the formats of docs/data.md (jsonl, messages, table, ranking, ...), or a reader's import path; default:
    detected from the file's name and content."""
    speakers: Mapping[str, Literal["user", "agent", "skip"]]
    """What speakers are, by the source's own names: {"customer": "user", "*": "agent"}; * stands for all others."""
    columns: Mapping[str, str]
    """The source's own names of columns, by what they are: {"id": "ticket", "text": "body"}; others are guessed."""
    map_intents: str | Path | Mapping[str, Any]
    """Names of intents by the source's own labels: a JSON file or its content, as in docs/data.md."""
    num_candidates: int
    """Candidates of a pool, the right one among them; default: 10."""
    negative_sampler: str
    """Where wrong candidates come from: neighbourhood (default), bm25-response, random, or a sampler's import path."""
    context_turns: int
    """Maximum number of utterances in a context, the last ones; default: 4."""
    min_context: int
    """Minimum number of utterances before a response; default: 2, or 1 where all dialogues have two turns."""
    seed: int
    """Seed of splits, negatives and the order of candidates; default: 7."""
    limit: int | None
    """Maximum number of pools of a split."""
    unanswerable: float
    """Fraction of each split's pools that lose their right candidate for another wrong one; default: 0."""
    skip_bad: bool
    """Write bad records to OUT.rejected.jsonl instead of stopping."""


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

    Args:
        source: dialogues or ready pools: a file or folder of a format of docs/data.md, or .gz.
        out: pool folder to write: a path or e.g. s3://bucket/pools.
        options: protocol, labelled, format, speakers, columns, map_intents, num_candidates, negative_sampler,
            context_turns, min_context, seed, limit, unanswerable, skip_bad, logs, fresh, address, executor; see
            `PoolKeywords`.

    Raises:
        DataError: a record is invalid.
        SettingError: an option is invalid, or `out` contains something else.
    """
    settings = {name: value for name, value in options.items() if name in PoolKeywords.__annotations__}
    with session(Place.of(options)) as active:
        logs = options.get("logs")
        return prepare_pools(
            active,
            local_path(source),
            local_path(out),
            settings,
            logs=local_path(logs) if logs else None,
            fresh=options.get("fresh", False),
        )


def preview(source: str | Path, **options: Unpack[PoolKeywords]) -> list[str]:
    """Return lines that show what `prepare` understands of the first records; nothing is written.

    Args:
        source: as for `prepare`.
        options: as for `prepare`.

    Raises:
        DataError: the source cannot be read.
        SettingError: an option is invalid, or the format cannot be detected.
    """
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

    progress = active.progress
    started = time.monotonic()
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
