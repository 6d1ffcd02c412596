"""The console for people, on standard error, and how its tables look."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

_LOG_WIDTH = 160


def people_console() -> Console:
    """Return a console on standard error, wide enough for every table where that isn't a terminal."""
    console = Console(stderr=True, highlight=False, force_jupyter=False)
    if not console.is_terminal:
        console.width = _LOG_WIDTH
    return console


def titled_table(title: str = "", caption: str = "", *, gap: int = 2, expand: bool = False) -> Table:
    """Return a table without columns.

    Args:
        title: shown above as it is, even with brackets, as names of folders may have them.
        caption: shown below.
        gap: spaces between columns.
        expand: use the whole width.
    """
    return Table(
        title=Text(title, style="bold") if title else None,
        title_justify="left",
        caption=Text(caption, style="table.caption") if caption else None,
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, gap, 0, 0),
        expand=expand,
    )
