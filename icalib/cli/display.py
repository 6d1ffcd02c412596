"""Options that every verb has: how progress and tables are shown."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from inspect import Parameter
from typing import Annotated, Any

import typer

from icalib.core.display import Display, showing
from icalib.core.errors import SettingError

_OPTIONS: tuple[tuple[str, Any, Any], ...] = (
    ("quiet", Annotated[bool, typer.Option("--quiet", help="Show no progress, only results and errors.")], False),
    (
        "wide",
        Annotated[bool, typer.Option("--wide", help="Show all columns, wider than the terminal if need be.")],
        False,
    ),
    (
        "log_format",
        Annotated[str, typer.Option("--log-format", help="Progress as text, or as one JSON object an event: json.")],
        "text",
    ),
    (
        "track",
        Annotated[
            list[str] | None, typer.Option("--track", help="Also send runs to mlflow or wandb; may be repeated.")
        ],
        None,
    ),
)


def with_display(function: Callable[..., None]) -> Callable[..., None]:
    """Return the function as Typer takes it, with options for how it shows what it does."""

    @wraps(function)
    def shown(**values: Any) -> None:
        quiet, wide, log_format, track = (values.pop(name) for name, _, _ in _OPTIONS)
        if log_format not in ("text", "json"):
            raise SettingError(f"--log-format {log_format} is unknown. Choose text or json.")
        with showing(Display(quiet=quiet, wide=wide, log_format=log_format, track=tuple(track or ()))):
            function(**values)

    options = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint) for name, hint, default in _OPTIONS
    ]
    signature = inspect.signature(function)
    parameters = [*signature.parameters.values(), *options]
    shown.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportAttributeAccessIssue]
    shown.__annotations__ = {option.name: option.annotation for option in parameters}
    return shown
