"""Options in groups: a parameter whose type is a dataclass stands for one option per field."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from inspect import Parameter
from typing import Any, get_type_hints


def with_groups(function: Callable[..., None]) -> Callable[..., None]:
    """Return the function as Typer takes it: with the fields of each dataclass in place of the parameter.

    Fields carry Typer's annotations, as parameters do:

        @dataclass(frozen=True)
        class Machines:
            workers: Annotated[int | None, typer.Option(help="Training workers.")] = None

        @app.command()
        @with_groups
        def run(method: str, machines: Machines) -> None: ...
    """
    hints = get_type_hints(function, include_extras=True)
    declared = inspect.signature(function).parameters
    groups = {name: hints[name] for name in declared if is_dataclass(hints[name])}

    @wraps(function)
    def command(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        function(**values)

    options = [
        option
        for name, parameter in declared.items()
        for option in (_options(groups[name]) if name in groups else [_option(parameter, hints[name])])
    ]
    command.__signature__ = inspect.Signature(options)  # pyright: ignore[reportAttributeAccessIssue]
    command.__annotations__ = {option.name: option.annotation for option in options}
    return command


def _option(parameter: Parameter, hint: Any) -> Parameter:
    return parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hint)


def _options(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=_default(field), annotation=hints[field.name])
        for field in fields(group)
    ]


def _default(field: Field[Any]) -> Any:
    return Parameter.empty if field.default is MISSING else field.default
