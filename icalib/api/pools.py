"""`icalib.prepare`."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icalib.api.options import ExecutorName, Place
from icalib.api.session import Session
from icalib.core.storage import local_path, location

if TYPE_CHECKING:
    from icalib.data.schema import PoolSet


def prepare(
    source: str | Path,
    out: str | Path,
    *,
    logs: str | Path | None = None,
    fresh: bool = False,
    address: str | None = None,
    executor: ExecutorName = "ray",
    **settings: Any,
) -> PoolSet:
    """Turn dialogues into pools: a context, its right response, and wrong ones mined from other dialogues.

        icalib.prepare("dialogues.jsonl", "pools/mine", executor="local")

    The same call again returns the pool folder as it is. A DataError names an invalid record; a SettingError says that
    an option is invalid, or that `out` contains something else.

    Args:
        source: dialogues or ready pools: a file or folder of a format of docs/data.md, or .gz.
        out: pool folder to write: a path or e.g. s3://bucket/pools.
        logs: dialogues outside the pools, for domain pre-training; they may contain those of the source.
        fresh: replace a pool folder made from other inputs.
        address, executor: as in `run`.
        settings: those of `icalib.data.settings.PrepareSettings`, which explains each.
    """
    from icalib.core.component import validated
    from icalib.core.events import Progress, StageFinished, StageStarted
    from icalib.data.prepare import PrepareSettings
    from icalib.data.prepare import prepare as make_pools
    from icalib.reports.progress import TerminalProgress

    folder, wanted = local_path(out), validated(PrepareSettings, settings)
    with TerminalProgress() as progress, ExitStack() as until_done:
        active = Session(Place(address=address, executor=executor), progress, fresh=False)
        show, started = progress.show, time.monotonic()
        begun: dict[str, float] = {}

        def finish() -> None:
            for stage in list(begun):
                seconds = time.monotonic() - begun.pop(stage)
                show(StageFinished(stage, stage, 0, "", folder, seconds, reused=False))

        def on_progress(stage: str, done: int, total: int | None) -> None:
            if stage not in begun:
                finish()
                begun[stage] = time.monotonic()
                show(StageStarted(stage, reused=False))
            show(Progress(stage, done, total))

        pool_set = make_pools(
            local_path(source),
            folder,
            wanted,
            logs=local_path(logs) if logs else None,
            fresh=fresh,
            parallel_map=active.parallel_map,
            begin=lambda: until_done.enter_context(active.started()),
            progress=on_progress,
            note=active.message,
        )
        finish()
        seconds = time.monotonic() - started
        counts = ", ".join(f"{number} {split}" for split, number in pool_set.num_pools.items())
        logged = f", {pool_set.num_logs} dialogues of logs" if pool_set.num_logs else ""
        active.message(f"{location(folder)}: {counts} pools, {len(pool_set.intents)} intents{logged}, {seconds:.0f} s")
        if pool_set.negative_sampler != "source":
            of_logs = "the replies that were given (docs/own-data.md, Are logged replies labels?)"
            taken = "the answers that the source has" if pool_set.reader == "ranking" else of_logs
            active.message(f"taken as right: {'the accepted answers' if pool_set.answers == 'accepted' else taken}")
        return pool_set


def preview(source: str | Path, **settings: Any) -> list[str]:
    """Return lines that show what `prepare` understands of the first records of a source; nothing is written."""
    from icalib.core.component import validated
    from icalib.data.preview import preview as lines
    from icalib.data.settings import PrepareSettings

    return list(lines(local_path(source), validated(PrepareSettings, settings)))
