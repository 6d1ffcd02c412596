"""What each model of a run read in one pool, for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Column
from rich.text import Text

from icalib.reports.comparison import MISSING, format_difference, format_value
from icalib.reports.console import people_console, text_table

if TYPE_CHECKING:
    from icalib.pipeline.why import CandidateReading, Mistake, Reading, Why


def print_why(found: Why, console: Console | None = None) -> None:
    """Print the context with its intents, then a table of the candidates for each reading."""
    console = console or people_console()
    console.print(Text(f"{found.pool.pool_id}, {found.split}", style="bold"))
    for turn, utterance in enumerate(found.pool.context):
        line = Text(f"{utterance.speaker}: {utterance.text}")
        if utterance.intents:
            line.append(f"  [{', '.join(utterance.intents)}]", style="green")
        if predicted := _predicted(found, turn):
            line.append(f"  predicted [{', '.join(predicted)}]", style="cyan")
        console.print(line, soft_wrap=True)
    if found.note:
        console.print(Text(found.note, style="yellow"))
    for reading in found.readings:
        headings = (Column("candidate", overflow="fold", max_width=60), *columns(reading))
        rows = [(f"{_mark(one)} {one.text}", *cells(reading, one)) for one in reading.candidates]
        console.print(text_table(headings, rows, title=_title(reading), caption=reading.thresholds))


def print_mistakes(found: Sequence[Mistake]) -> None:
    """Print pools that were answered wrongly, the most confident first in each place."""
    headings = ("where", "pool", "p̄", "g", "Δ")
    rows = [
        (
            one.stage,
            one.pool_id,
            format_value(one.prob),
            format_value(one.information) if one.information else MISSING,
            MISSING if one.gain is None else format_difference(one.gain),
        )
        for one in found
    ]
    people_console().print(text_table(headings, rows, title="Wrong, by falling confidence"))


def _predicted(found: Why, turn: int) -> Sequence[str]:
    """Return the intents that the last reading predicted of an utterance."""
    return next(iter(found.readings[-1].intents[turn : turn + 1]), ()) if found.readings else ()


def columns(reading: Reading) -> list[str]:
    """Return the headings of a reading's numbers: each part's share, then what follows from their sum."""
    numbers = [*_parts(reading), *(["b"] if reading.offset else []), "logit", "p̄"]
    numbers += ["g"] if _is_uncertain(reading) else []
    numbers += ["Δ", "view"] if _has_gain(reading) else []
    return numbers + (["pseudo label"] if reading.rule else [])


def cells(reading: Reading, one: CandidateReading) -> list[str]:
    """Return a candidate's numbers in the order of `columns`."""
    values = [*(one.shares[part] for part in _parts(reading)), *([reading.offset] if reading.offset else []), one.logit]
    shown = [f"{value:+.2f}" for value in values] + [format_value(one.prob)]
    shown += [format_value(one.information)] if _is_uncertain(reading) else []
    shown += [format_difference(one.gain), one.view] if _has_gain(reading) else []
    return shown + ([_pseudo_label(one)] if reading.rule else [])


def _pseudo_label(one: CandidateReading) -> str:
    if one.pseudo_label is None:
        return MISSING
    is_wrong = one.gold >= 0 and one.gold != one.pseudo_label
    return f"{one.pseudo_label}" + (f", gold {one.gold}" if is_wrong else "")


def _parts(reading: Reading) -> Sequence[str]:
    return list(reading.candidates[0].shares) if reading.candidates else []


def _is_uncertain(reading: Reading) -> bool:
    return any(one.information > 0 for one in reading.candidates)


def _has_gain(reading: Reading) -> bool:
    return any(not math.isnan(one.gain) for one in reading.candidates)


def _mark(one: CandidateReading) -> str:
    return "✓" if one.gold == 1 else " "


def _title(reading: Reading) -> str:
    return f"{reading.title}: {reading.rule}" if reading.rule else reading.title
