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

    found = icalib.list_methods()
    width = max(map(len, found))
    for name, description in found.items():
        typer.echo(f"{name:<{width}}  {description}")


@verb
def show(
    method: Annotated[str, typer.Argument(help="A method's name or import path.")],
    settings: Set = None,
    preset: Preset = None,
) -> None:
    """Print all settings that a method reads with their values and what they mean.

    With a paper's preset, each of its values is printed with the place in the paper that it comes from.
    """
    from icalib.api.settings import composed, parsed_settings
    from icalib.core.component import described
    from icalib.methods.catalogue import describe, paper_preset, presets
    from icalib.methods.papers import counts

    made = composed(method, preset, parsed_settings(settings or ()))
    sourced = paper_preset(method, preset) if preset else {}
    typer.echo(describe(method) + "\n")
    for path, value, text in described(made):
        if made.why_unused(path):
            continue
        given = sourced.get(path)
        source = f"  # {given.source}" if given and given.value == value else ""
        typer.echo(f"{path} = {json.dumps(value)}{source}")
        if text:
            typer.echo(f"    {text}")
    for name, choices in presets(method).items():
        typer.echo(f"\n--preset {name}")
        values = paper_preset(method, name)
        for path, value in choices.items():
            source = f"  # {values[path].source}" if path in values else ""
            typer.echo(f"    {path} = {json.dumps(value)}{source}")
            if path in values and values[path].paper:
                typer.echo(f"        the paper: {values[path].paper}")
        if values:
            typer.echo("    " + ", ".join(f"{number} {kind}" for kind, number in counts(values).items()))
