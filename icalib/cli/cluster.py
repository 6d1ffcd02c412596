"""`icalib doctor`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icalib.cli.app import verb
from icalib.cli.options import Address, Json, Runs, place_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from icalib.core.check import Check
    from icalib.distributed.doctor.examination import Wanted
    from icalib.reports.doctor_terminal import Examination


@verb
def doctor(
    address: Address = None,
    data: Annotated[Path | None, place_option("Pool folder that every node must read; default: none.")] = None,
    runs: Runs = Path("runs"),
    backbone: Annotated[str, typer.Option(help="Encoder that every node must load.")] = "minilm",
    workers: Annotated[int, typer.Option(min=1, help="Training workers that must fit and reach each other.")] = 2,
    as_json: Json = False,
) -> None:
    """Check a machine or cluster before it costs money; each failure says what to do about it.

    Every node reports its versions, GPUs, memory, disk space and clock, and whether it can read the backbone and the
    pools and shares --runs with the others; then a tiny ranker is trained by two workers and scores two shards. The
    exit code is 1 if anything failed.
    """
    from icalib.distributed.doctor.examination import Wanted
    from icalib.reports.doctor_terminal import Examination

    wanted = Wanted(runs.resolve(), backbone, data.resolve() if data else None, workers)
    with Examination() as shown:
        checks = list(_examined(address, wanted, shown))
    shown.summary()
    if as_json:
        typer.echo(json.dumps({"checks": [asdict(check) for check in checks]}))
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(1)


def _examined(address: str | None, wanted: Wanted, shown: Examination) -> Iterator[Check]:
    from icalib.distributed.doctor.examination import examine, join
    from icalib.distributed.session import stop

    joined = join(address)
    shown.show(joined)
    yield joined
    if joined.status == "fail":
        return
    try:
        for check in examine(wanted, shown.begins):
            shown.show(check)
            yield check
    finally:
        stop()
