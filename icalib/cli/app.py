"""The root of the command line: its help, the registration of verbs, and how errors are printed."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from typing import TypeVar

import typer

from icalib.cli.groups import with_groups
from icalib.cli.interrupts import resumable
from icalib.core.errors import IcalibError

F = TypeVar("F", bound=Callable[..., None])

_STORAGE_FAILED = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EREMOTEIO, errno.ENOTCONN, errno.EHOSTDOWN)

app = typer.Typer(
    name="icalib",
    help="Train answer rankers whose probabilities can be trusted, from dialogue logs and few labels.\n\n"
    "Start with `icalib demo`. With your own dialogues: `icalib prepare FILE --out pools/mine`, then "
    "`icalib compare bert tsst icast --data pools/mine --labelled 0.1`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def verb(function: F) -> F:
    """Register a function as a verb; parameters that are dataclasses stand for groups of options."""
    app.command()(resumable(with_groups(function)))
    return function


def main() -> None:
    """Run the command line; errors that a user can fix are printed without a traceback."""
    try:
        app()
    except IcalibError as error:
        typer.secho(f"error: {error}", fg=typer.colors.RED, err=True)
        sys.exit(2)
    except OSError as error:  # raised by a network file system whose server can't be reached
        if error.errno not in _STORAGE_FAILED:
            raise
        cure = "Check the storage. Files are complete or absent: run the same command again to resume."
        typer.secho(f"error: storage failed: {error}. {cure}", fg=typer.colors.RED, err=True)
        sys.exit(2)
