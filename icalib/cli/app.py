"""The root of the command line: its help, the registration of verbs, and how errors are printed."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn, TypeVar, cast

import typer

from icalib.cli.groups import with_groups
from icalib.cli.interrupts import resumable
from icalib.core.errors import IcalibError
from icalib.core.files import system_error
from icalib.core.process import WAITING, collect_rarely
from icalib.core.text import message, printable, shortened
from icalib.core.version import __version__

F = TypeVar("F", bound=Callable[..., None])

# raised by a disk that is full, and by a network file system whose server can't be reached
_STORAGE_FAILED = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS),
    *(errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EREMOTEIO, errno.ENOTCONN, errno.EHOSTDOWN),
)

app = typer.Typer(
    name="icalib",
    help="Train answer rankers whose probabilities can be trusted, from dialogue logs and few labels.\n\n"
    "Start with `icalib demo`. With your own dialogues: `icalib prepare FILE --out pools/mine`, then "
    "`icalib compare bert tsst --data pools/mine --labelled 0.1`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"icalib {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and stop.")
    ] = False,
) -> None:
    """Typer's place for options before the verb."""


def verb(function: F) -> F:
    """Register a function as a verb; parameters that are dataclasses stand for groups of options."""
    app.command()(resumable(with_groups(function)))
    return function


def subverb(group: typer.Typer, name: str) -> Callable[[F], F]:
    """Register a function as a verb of a group of verbs, such as `next` of `icalib label`."""

    def register(function: F) -> F:
        group.command(name)(resumable(with_groups(function)))
        return function

    return register


def main() -> None:
    """Run the command line; errors that a user can fix are printed without a traceback."""
    collect_rarely()
    for name, value in WAITING.items():  # before torch is imported
        os.environ.setdefault(name, value)
    try:
        sys.exit(app(standalone_mode=False))
    except typer.TyperException as error:  # of the command line itself
        error.message = printable("\n".join(shortened(line, 1000) for line in error.message.splitlines()))
        cast("Any", error).show()
        sys.exit(error.exit_code)
    except typer.Abort:
        _fail("aborted")
    except IcalibError as error:
        _fail(str(error))
    except Exception as error:
        if system_error(error) in _STORAGE_FAILED:
            cure = "Check the storage. Files are complete or absent: run the same command again to resume."
            _fail(f"storage failed: {error}. {cure}")
        if not isinstance(error, OSError) or error.errno is None or error.filename is None:
            raise
        _fail(f"can't use {error.filename}: {error.strerror}. Check the path, its permissions and the disk.")


def _fail(text: str) -> NoReturn:
    typer.secho(f"error: {message(text)}", fg=typer.colors.RED, err=True)
    sys.exit(2)
