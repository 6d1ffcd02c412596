"""`icalib doctor`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from icalib.cli.app import verb
from icalib.cli.options import Address, Json, Runs
from icalib.cli.output import say


@verb
def doctor(
    address: Address = None,
    runs: Runs = Path("runs"),
    workers: Annotated[int, typer.Option(min=1, help="Training workers that must fit and reach each other.")] = 2,
    as_json: Json = False,
) -> None:
    """Check a machine or cluster before it costs money; each failure says what to do about it.

    Every node reports its versions, GPUs, disk space and token, and whether it shares --runs with the others; then a
    tiny ranker is trained by the workers and scores two shards. The exit code is 1 if anything failed.
    """
    from icalib.distributed.doctor.examination import Wanted, examine, join
    from icalib.distributed.session import stop
    from icalib.reports.doctor_terminal import Examination

    with Examination() as shown:
        checks = [join(address)]
        shown.show(checks[0])
        if checks[0].status != "fail":
            try:
                for check in examine(Wanted(runs.resolve(), workers), shown.begins):
                    shown.show(check)
                    checks.append(check)
            finally:
                stop()
    failed = [check.name for check in checks if check.status == "fail"]
    say(f"Not ready: {', '.join(failed)}. Do what the arrows say, then look again." if failed else "Ready.")
    if as_json:
        typer.echo(json.dumps({"checks": [asdict(check) for check in checks]}))
    raise typer.Exit(int(bool(failed)))
