"""Verbs that tell of methods: methods, show."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from icalib.cli.app import Preset, Set, app
from icalib.cli.settings import changed, preset_settings


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
    preset: Preset = None,
) -> None:
    """Print all settings of a method with their values and what they mean."""
    from icalib.core.component import described, with_settings
    from icalib.methods.catalogue import describe, load_method, presets

    typer.echo(describe(method) + "\n")
    made = with_settings(load_method(method), preset_settings(method, preset))
    for path, value, text in described(changed(made, settings)):
        typer.echo(f"{path} = {json.dumps(value)}")
        if text:
            typer.echo(f"    {text}")
    for name, choices in presets(method).items():
        typer.echo(f"\n--preset {name}")
        for path, value in choices.items():
            typer.echo(f"    {path} = {json.dumps(value)}")
