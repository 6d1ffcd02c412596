"""Verbs that tell of methods: methods, show."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from icalib.cli.app import Set, app
from icalib.cli.settings import changed


@app.command()
def methods() -> None:
    """List the methods with one line each."""
    from icalib.methods.catalogue import describe, method_names

    width = max(map(len, method_names()))
    for name in method_names():
        typer.echo(f"{name:<{width}}  {describe(name)}")


@app.command()
def show(
    method: Annotated[str, typer.Argument(help="A method's name or import path.")],
    settings: Set = None,
) -> None:
    """Print all settings of a method with their values and what they mean."""
    from icalib.core.component import described
    from icalib.methods.catalogue import describe, load_method

    typer.echo(describe(method) + "\n")
    for path, value, text in described(changed(load_method(method), settings)):
        typer.echo(f"{path} = {json.dumps(value)}")
        if text:
            typer.echo(f"    {text}")
