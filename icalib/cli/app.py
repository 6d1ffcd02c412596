"""The command line's root: what it is called, what it says of faults, and the options that verbs share."""

from __future__ import annotations

import errno
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from icalib.core.errors import IcalibError, SettingError
from icalib.core.files import FOLDER_NAME
from icalib.core.storage import local_path

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


def place_option(help: str) -> Any:
    """An option that takes a path or an object store's URI."""
    return typer.Option(parser=local_path, metavar="<path or URI>", help=help)


def place_argument(help: str) -> Any:
    """An argument that takes a path or an object store's URI."""
    return typer.Argument(parser=local_path, help=help)


def _folder_name(name: str) -> str:
    if not re.search(FOLDER_NAME, name):
        raise SettingError(
            f"--experiment {name} is no folder's name. Give letters, digits, `_`, `-` and `.`, e.g. first-try; --runs "
            "says where the folder lies."
        )
    return name


Data = Annotated[Path, place_option("Pool folder that `icalib prepare` made; a path or e.g. s3://bucket/pools.")]
Labelled = Annotated[
    float | None,
    typer.Option(
        help="Share of the training pools whose right answer the method sees; default: what prepare was given."
    ),
]
Limit = Annotated[
    str | None,
    typer.Option(
        help="Use at most N pools of each split (`--limit 800`), or of some: train=2000,validation=200,test=400."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting, e.g. --set regime.num_rounds=2; `icalib show METHOD` lists them."),
]
Preset = Annotated[
    str | None,
    typer.Option(
        help="Settings that go together, e.g. light for a laptop, before --set; `icalib show METHOD` has them."
    ),
]
Backbone = Annotated[
    str | None,
    typer.Option(
        help="Encoder: minilm (embedded), a folder or its URI (s3://…), or a hub name such as bert-base-uncased."
    ),
]
Runs = Annotated[Path, place_option("Where run folders and the stage cache lie: a folder or e.g. s3://bucket/runs.")]
Experiment = Annotated[
    str, typer.Option(help="Folder under --runs that groups runs: a name, not a path.", callback=_folder_name)
]
Workers = Annotated[
    int | None, typer.Option(help="Training workers; default: one a GPU, or one on this machine's CPU cores.")
]
Address = Annotated[str | None, typer.Option(help="Address of a Ray cluster; default: this machine.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Compute everything anew instead of resuming and reusing.")]
Run = Annotated[Path, place_argument("Finished run folder: runs/EXPERIMENT/METHOD-DATA-LABELLED-sSEED.")]
OtherData = Annotated[Path | None, place_option("Another pool folder than the run's own; nothing is fitted on it.")]
TestLimit = Annotated[int | None, typer.Option(min=1, help="Use at most N pools, the same for every run.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object on standard output.")]


def main() -> None:
    """Entry point: faults that a user can mend are printed without a traceback."""
    try:
        app()
    except IcalibError as error:
        typer.secho(f"error: {error}", fg=typer.colors.RED, err=True)
        sys.exit(2)
    except OSError as error:  # what a network file system says when its server is away
        if error.errno not in _STORAGE_FAILED:
            raise
        cure = "Check the storage; what was written is whole, and the same command goes on from there."
        typer.secho(f"error: storage failed: {error}. {cure}", fg=typer.colors.RED, err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.secho("interrupted; the same command goes on from the last checkpoint.", err=True)
        sys.exit(130)
