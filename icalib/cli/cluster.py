"""`icalib doctor`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icalib.cli.app import verb
from icalib.cli.options import Address, Json, Runs
from icalib.cli.output import say
from icalib.core.check import Check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@verb
def doctor(
    address: Address = None,
    runs: Runs = Path("runs"),
    workers: Annotated[int, typer.Option(min=1, help="Training workers that must fit and reach each other.")] = 2,
    as_json: Json = False,
) -> None:
    """Check a machine or cluster before it costs money; each failure says what to do about it.

    Every node reports its versions and token, and whether it shares --runs with the others; then a tiny ranker is
    trained by the workers, on GPUs if there are any, and scores some shards. The exit code is 1 if anything failed.
    """
    from icalib.reports.cluster import print_check
    from icalib.reports.console import people_console

    console, checks = people_console(), list[Check]()
    with console.status("starting Ray") as status:
        for check in _examined(address, runs.resolve(), workers, lambda what: status.update(f"checking {what}")):
            print_check(check, console)
            checks.append(check)
    failed = [check.name for check in checks if check.status == "fail"]
    say(f"Not ready: {', '.join(failed)}. Do what the arrows say, then look again." if failed else "Ready.")
    if as_json:
        typer.echo(json.dumps({"checks": [asdict(check) for check in checks]}))
    raise typer.Exit(int(bool(failed)))


def _examined(address: str | None, runs: Path, workers: int, begins: Callable[[str], None]) -> Iterator[Check]:
    from icalib.distributed.doctor import examine, join
    from icalib.distributed.session import stop

    joined = join(address)
    yield joined
    if joined.status == "fail":
        return
    try:
        yield from examine(runs, workers, begins)
    finally:
        stop()
