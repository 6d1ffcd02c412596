"""The options that verbs share: annotated types, groups of options that travel together, and how texts are parsed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from icalib.api.options import ExecutorName, Place, RunKeywords
from icalib.api.settings import parsed_settings
from icalib.core.errors import SettingError
from icalib.core.storage import local_path
from icalib.core.text import shortened


def place_option(help: str) -> Any:
    """An option that takes a path or an object store's URI."""
    return typer.Option(parser=local_path, metavar="<path or URI>", help=help)


def place_argument(help: str) -> Any:
    """An argument that takes a path or an object store's URI."""
    return typer.Argument(parser=local_path, help=help)


Data = Annotated[Path, place_option("Pool folder that `icalib prepare` made; a path or e.g. s3://bucket/pools.")]
Labelled = Annotated[
    float | None,
    typer.Option(
        help="Fraction of the training pools whose right answer the method sees; default: what prepare was given."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting, e.g. --set regime.num_rounds=2; `icalib show METHOD` lists them."),
]
Preset = Annotated[
    str | None,
    typer.Option(
        help="Settings that belong together, e.g. bi-encoder for a laptop, applied before --set; `icalib show METHOD` "
        "lists them."
    ),
]
Runs = Annotated[
    Path, place_option("Where run folders and the stage cache are stored: a folder or e.g. s3://bucket/runs.")
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Training workers; default: one per GPU, or one on this machine's CPU cores.")
]
Address = Annotated[str | None, typer.Option(help="Address of a Ray cluster; default: this machine.")]
Executor = Annotated[
    ExecutorName,
    typer.Option(help="ray: Ray and DeepSpeed, on this machine or at --address; local: this process, without Ray."),
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Recompute everything from scratch instead of resuming and reusing.")
]
Dry = Annotated[bool, typer.Option("--dry", help="Only list the stages, cached or not.")]
Run = Annotated[Path, place_argument("Finished run folder: runs/EXPERIMENT/METHOD-DATA-LABELLED-sSEED.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object on standard output.")]


@dataclass(frozen=True)
class PlaceOptions:
    """Where run folders are stored; how many training workers, on which cluster, by which executor."""

    runs: Runs = Path("runs")
    workers: Workers = None
    address: Address = None
    executor: Executor = "ray"

    def place(self) -> Place:
        """Return them as a value, or raise a SettingError."""
        return Place(**vars(self))


@dataclass(frozen=True)
class RunOptions(PlaceOptions):
    """What runs have in common besides method, pools and seed."""

    limit: Annotated[
        str | None,
        typer.Option(help="Use at most N pools of each split (`--limit 800`), or of some: train=2000,test=400."),
    ] = None
    settings: Set = None
    preset: Preset = None
    backbone: Annotated[
        str | None,
        typer.Option(help="Encoder: minilm (embedded), a folder or its URI, or a hub name such as bert-base-uncased."),
    ] = None
    resample_labels: Annotated[
        bool,
        typer.Option("--resample-labels", help="Let each seed draw its own labelled pools: the spread includes that."),
    ] = False
    experiment: Annotated[str, typer.Option(help="Folder under --runs that groups runs: a name, not a path.")] = (
        "default"
    )
    track: Annotated[
        list[str] | None,
        typer.Option("--track", help="Also send runs, and a sweep's winner, to mlflow or wandb; may be repeated."),
    ] = None
    fresh: Fresh = False

    def keywords(self) -> RunKeywords:
        """Return them as the API takes them, or raise a SettingError if a text can't be parsed."""
        parsed = {"limit": parsed_limit(self.limit), "settings": parsed_settings(self.settings or ())}
        return cast("RunKeywords", {**vars(self), **parsed})


def parsed_limit(text: str | None) -> Any:
    """Return what --limit says: one number, or numbers by split."""
    if text is None:
        return None
    try:
        if "=" not in text:
            return int(text)
        return {name: int(number) for name, number in parsed_pairs("--limit", [text]).items()}
    except ValueError as error:
        raise SettingError(
            f"--limit {shortened(text)} can't be parsed: write a number, or e.g. train=2000,test=400."
        ) from error


def parsed_pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Return pairs NAME=VALUE, several of which may be in one text, separated by commas; a name may have commas, too:
    `Doe, John=user`.
    """
    # a comma is the end of a pair only after a value
    ended = [re.sub("(=[^,]*),", "\\1\\0", text) for text in texts]
    parts = [part.strip() for text in ended for part in text.split("\0")]
    if wrong := [part for part in parts if not re.match("[^=,]", part) or "=" not in part]:
        raise SettingError(f"{option} {shortened(wrong[0])} can't be parsed: write NAME=VALUE, separated by commas.")
    return {name.strip(): value.strip() for name, _, value in (part.rpartition("=") for part in parts)}


def parsed_fractions(text: str, option: str = "--fractions") -> list[float]:
    """Return labelled fractions from numbers separated by commas, once each."""
    try:
        return list(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError as error:
        raise SettingError(f"{option} {shortened(text)} can't be parsed: write numbers, e.g. 0.01,0.03,0.1.") from error
