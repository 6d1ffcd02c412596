"""Labels that are probably wrong, for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Column

from icalib.core.text import shortened
from icalib.reports.comparison import format_value
from icalib.reports.console import people_console, text_table

if TYPE_CHECKING:
    from icalib.labelling.suspects import Suspect, Suspects

_TURNS, _LENGTH = 2, 160  # of a context's end; characters of a text


def print_suspects(found: Suspects) -> None:
    """Print how many labels look wrong, then each pool with the end of its context and the two candidates."""
    console = people_console()
    title = f"{found.num_suspects} of {found.num_labelled} labels look wrong"
    if not found.suspects:
        console.print(title)
        return
    columns = [Column(name, overflow="fold") for name in ("pool", "context", "labelled", "the model's choice")]
    rows = [_cells(one) for one in found.suspects]
    console.print(text_table(columns, rows, title=f"{title}; the likeliest first"))


def _cells(one: Suspect) -> list[str]:
    turns = [shortened(f"{turn.speaker}: {turn.text}", _LENGTH) for turn in one.pool.context[-_TURNS:]]
    labelled = "none of these" if one.labelled is None else _candidate(one, one.labelled)
    return [
        one.pool.pool_id,
        "\n".join(turns),
        f"{format_value(one.labelled_prob)}  {labelled}",
        f"{format_value(one.preferred_prob)}  {_candidate(one, one.preferred)}",
    ]


def _candidate(one: Suspect, index: int) -> str:
    return f"{index + 1}. {shortened(one.pool.candidates[index], _LENGTH)}"
