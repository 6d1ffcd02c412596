"""The commands that README, the pages of docs/ and the notebooks show."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?:^ {4,}\S.*\n)+", re.MULTILINE)
INLINE = re.compile(r"`([^`]+)`", re.DOTALL)
PROGRAM = re.compile(r" *(?:\w+=\S+ )*(?:(?:\S*/)?icalib|\S*python -m icalib|sbatch (?:-\S+ )*\S+\.sbatch) +")


def text_of(page: Path) -> str:
    """A page's text; of a notebook, that around its code."""
    if page.suffix != ".ipynb":
        return page.read_text()
    cells = json.loads(page.read_text())["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown") + "\n"


def shell_lines(text: str) -> Iterator[str]:
    """The commands in a page's blocks, with continued lines joined."""
    blocks = [code for _, language, code in FENCED.findall(text) if language in ("", "bash", "sh")]
    for block in [*blocks, *INDENTED.findall(FENCED.sub("", text))]:
        yield from re.sub(r"\\\n", " ", block).splitlines()


def words_of(line: str) -> Iterator[list[str]]:
    """The words after `icalib` of each command in a line of a shell."""
    line = re.sub(r"\$\([^)]*\)|(?<= )\$[A-Z]+(?= |$)", "", line)  # what a shell expands
    for command in re.split(r"; |&&", re.sub(r"\s#.*", "", line)):
        if found := PROGRAM.match(command):
            yield shlex.split(command[found.end() :])
