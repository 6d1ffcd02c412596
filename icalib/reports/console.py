"""The console for people, on standard error, and how its tables look."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text
from typing_extensions import override

from icalib.core.text import printable

_LOG_WIDTH = 160


class PlainConsole(Console):
    """A console that shows control characters of texts, which may be a stranger's, instead of sending them."""

    @override
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def people_console() -> Console:
    """Return a console on standard error, wide enough for every table where that isn't a terminal."""
    console = PlainConsole(stderr=True, highlight=False, force_jupyter=False)
    if not console.is_terminal:
        console.width = _LOG_WIDTH
    return console


def text_table(
    columns: Iterable[str | Column],
    rows: Iterable[Sequence[str | Text]],
    *,
    title: str = "",
    caption: str = "",
    num_texts: int = 1,
    gap: int = 2,
) -> Table:
    """Return a table that shows all texts as they are, even with brackets, as names of folders may have them.

    Columns given as text are never cut: `num_texts` with texts first, then numbers. `gap` is the space between columns.
    """
    headers = (
        Column(one, no_wrap=True, justify="left" if index < num_texts else "right") if isinstance(one, str) else one
        for index, one in enumerate(columns)
    )
    table = Table(
        *headers,
        title=Text(title, style="bold") if title else None,
        title_justify="left",
        caption=Text(caption, style="table.caption") if caption else None,
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, gap, 0, 0),
    )
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return table
