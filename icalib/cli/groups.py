"""Options in groups: a parameter whose type is a dataclass stands for one option per field."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter
from typing import Annotated, Any, get_type_hints

import typer

from icalib.core.process import QUIET

_QUIET = Parameter(
    "quiet",
    Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[bool, typer.Option("--quiet", help="Show no progress, only results and errors.")],
)


def with_groups(function: Callable[..., None]) -> Callable[..., None]:
    """Return a verb as Typer takes it: with the fields of each dataclass in place of the parameter, and --quiet.

    Fields carry Typer's annotations, as parameters do.
    """
    hints = get_type_hints(function, include_extras=True)
    declared = inspect.signature(function).parameters
    groups = {name: hints[name] for name in declared if is_dataclass(hints[name])}

    def made(group: Any, values: dict[str, Any]) -> Any:
        return group(**{field.name: values.pop(field.name) for field in fields(group)})

    @wraps(function)
    def command(**values: Any) -> None:
        before = QUIET.set(values.pop("quiet"))
        try:
            function(**values | {name: made(group, values) for name, group in groups.items()})
        finally:
            QUIET.reset(before)

    options: list[Parameter] = []
    for name, parameter in declared.items():
        own = parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name])
        options += _options(groups[name]) if name in groups else [own]
    options.append(_QUIET)
    command.__signature__ = inspect.Signature(options)  # pyright: ignore[reportAttributeAccessIssue]
    command.__annotations__ = {option.name: option.annotation for option in options}
    return command


def _options(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    defaults = {field.name: Parameter.empty if field.default is MISSING else field.default for field in fields(group)}
    return [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])
        for name, default in defaults.items()
    ]
