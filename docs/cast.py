"""The terminal of the quick start, docs/images/cast.svg: commands as they ran, several times as fast.

make cast
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from html import escape
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import pyte

CAST = Path(__file__).resolve().parent / "images" / "cast.svg"
COMMANDS = (
    "icalib simulate desk.jsonl",
    "icalib prepare desk.jsonl --out pools/mine --labelled 0.10 --negatives random",
    "icalib run bert --data pools/mine --preset bi-encoder",
)
COLUMNS, ROWS = 100, 30
WIDTH, HEIGHT, MARGIN = 8.4, 19.0, 16.0
"""Of a character, of a row, and around all, in pixels."""
SPEED, FRAME, LAST, FIRST = 8, 0.2, 8.0, 2.0
"""How many times as fast it is shown; seconds between screens, and those of the last one, which is also the first to be
seen, for some of these: on paper it is the only one.
"""
INK, PAPER = "#d7dce2", "#1c2733"
NO_BREAK = "\xa0"
COLOURS = {"green": "#6fcf97", "cyan": "#56ccf2", "red": "#eb5757", "brown": "#e0912f"}

Row = tuple[tuple[str, str, bool], ...]
"""Runs of characters: text, colour, and whether they are bold."""
Frame = tuple[float, list[Row]]
"""When a screen appeared in seconds, and what it showed."""


def main() -> None:
    """Run the commands in an empty folder and draw what their terminal showed."""
    with TemporaryDirectory() as folder:
        frames = [*_shown(_recorded(Path(folder)))]
    CAST.write_text(_svg(frames), encoding="utf-8")
    print(f"{CAST}: {len(frames)} screens, {frames[-1][0] + LAST:.0f} s")


def _recorded(folder: Path) -> Iterator[Frame]:
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    for command in COMMANDS:
        stream.feed(f"$ {command}\r\n".encode())
        yield time.monotonic(), _rows(screen)
        for output in _output(command, folder):
            stream.feed(output)
            yield time.monotonic(), _rows(screen)


def _output(command: str, folder: Path) -> Iterator[bytes]:
    """Yield what a command writes to its terminal, as it comes."""
    ours, theirs = pty.openpty()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "COLUMNS": str(COLUMNS), "LINES": str(ROWS), "TERM": "xterm"}
    with subprocess.Popen(command.split(), cwd=folder, env=environment, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        while output := _read(ours):
            yield output
    os.close(ours)
    if process.returncode:
        raise SystemExit(f"{command}: exit status {process.returncode}")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux's end of a terminal whose process is gone
        return b""


def _rows(screen: pyte.Screen) -> list[Row]:
    return [_row(screen, number) for number in range(ROWS)]


def _row(screen: pyte.Screen, number: int) -> Row:
    characters = [screen.buffer[number][column] for column in range(COLUMNS)]
    runs = groupby(characters, key=lambda character: (character.fg, character.bold))
    return tuple(("".join(one.data for one in run), *style) for style, run in runs)


def _shown(frames: Iterator[Frame]) -> Iterator[Frame]:
    """Keep the last screen of every FRAME seconds, and the last of all."""
    started = None
    for number, same in groupby(frames, key=lambda frame: frame[0] // (FRAME * SPEED)):
        started = number if started is None else started
        yield (number - started) * FRAME, [*same][-1][1]


def _svg(frames: list[Frame]) -> str:
    """Draw each row once for the time in which it doesn't change; without animation the last screen is seen."""
    width, height = COLUMNS * WIDTH + 2 * MARGIN, ROWS * HEIGHT + 2 * MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}">',
        f"<title>A terminal: {escape('; '.join(COMMANDS))}</title>",
        f'<rect width="{width:.0f}" height="{height:.0f}" rx="8" fill="{PAPER}"/>',
        f'<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14" fill="{INK}">',
    ]
    end = frames[-1][0] + LAST
    for number in range(ROWS):
        changes = [(row, next(same)[0]) for row, same in groupby(frames, key=lambda frame: frame[1][number])]
        for (row, start), stop in zip(changes, [*(moment for _, moment in changes[1:]), None], strict=True):
            if any(text.strip() for text, *_ in row):
                lines.append(_text(row, number, start, stop, end))
    return "\n".join([*lines, "</g>", "</svg>", ""])


def _text(row: Row, number: int, start: float, stop: float | None, end: float) -> str:
    """Draw one row, seen from `start` to `stop` of each repetition of `end` seconds; None is to its end."""
    moments, values = [0, start], ["hidden", "visible"]
    if stop is not None:
        moments, values = [*moments, stop], [*values, "hidden"]
    times = ";".join(f"{moment / end:.4f}" for moment in moments)
    animation = (
        f'<animate attributeName="visibility" calcMode="discrete" dur="{end:.1f}s" begin="{FIRST - end:.1f}s" '
        f'repeatCount="indefinite" '
        f'keyTimes="{times}" values="{";".join(values)}"/>'
    )
    return (
        f'<text y="{MARGIN + HEIGHT * (number + 0.75):.1f}" visibility="{values[-1]}">{_spans(row)}{animation}</text>'
    )


def _spans(row: Row) -> str:
    column, spans = 0, ""
    for text, colour, bold in row:
        if seen := text.strip():
            place = MARGIN + WIDTH * (column + len(text) - len(text.lstrip()))
            style = f' fill="{COLOURS[colour]}"' if colour in COLOURS else ""
            style += ' font-weight="bold"' if bold else ""
            shown, length = escape(seen.replace(" ", NO_BREAK)), WIDTH * len(seen)
            spans += f'<tspan x="{place:.1f}" textLength="{length:.1f}"{style}>{shown}</tspan>'
        column += len(text)
    return spans


if __name__ == "__main__":
    main()
