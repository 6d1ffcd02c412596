"""Verbs that describe methods: methods, show."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from icalib.cli.app import verb
from icalib.cli.options import Preset, Set


@verb
def methods() -> None:
    """List the methods with one line each."""
    import icalib

    found = icalib.methods()
    width = max(map(len, found))
    for name, description in found.items():
        typer.echo(f"{name:<{width}}  {description}")


@verb
def show(
    method: Annotated[str, typer.Argument(help="A method's name or import path.")],
    settings: Set = None,
    preset: Preset = None,
) -> None:
    """Print all settings of a method with their values and what they mean."""
    from icalib.api.settings import changed, parsed_settings, variant_of
    from icalib.core.component import described
    from icalib.methods.catalogue import describe, presets

    typer.echo(describe(method) + "\n")
    for path, value, text in described(changed(variant_of(method, preset), parsed_settings(settings or ()))):
        typer.echo(f"{path} = {json.dumps(value)}")
        if text:
            typer.echo(f"    {text}")
    for name, choices in presets(method).items():
        typer.echo(f"\n--preset {name}")
        for path, value in choices.items():
            typer.echo(f"    {path} = {json.dumps(value)}")
