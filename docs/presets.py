"""The tables of docs/papers.md: where the papers' presets are of our choice, or differ from what a paper prints.

make results    writes them into the page, between `<!-- preset NAME -->` and `<!-- end of preset -->`
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from icalib.methods.catalogue import method_names, paper_preset, presets
from icalib.methods.papers import counts

PAGE = Path(__file__).resolve().parent / "papers.md"

_MARKED = re.compile(r"(<!-- preset (\S+) -->\n).*?(<!-- end of preset -->)", re.DOTALL)


def page_with_presets(text: str) -> str:
    """Return the page with each marked table written again."""
    return _MARKED.sub(lambda found: f"{found[1]}\n{table(found[2])}\n\n{found[3]}", text)


def preset_names() -> list[str]:
    """Return the presets of papers, without the alias `paper`."""
    return sorted({name for method in method_names() for name in presets(method) if name.startswith("paper-")})


def table(preset: str) -> str:
    """Return the deviations of one preset as Markdown, with the methods that each of them concerns."""
    sourced = {name: paper_preset(name, preset) for name in method_names() if preset in presets(name)}
    methods: dict[tuple[str, str], dict[str, None]] = {}
    numbers: Counter[str] = Counter()
    for name, values in sourced.items():
        numbers.update(counts(values))
        for path, value in values.items():
            if value.paper:
                setting = f"`{_short(path)}={json.dumps(value.value)}`"
                methods.setdefault((setting, value.paper), dict.fromkeys([name]))[name] = None
    groups: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for (setting, paper), names in methods.items():
        groups.setdefault(tuple(names), {}).setdefault(paper, []).append(setting)
    rows = []
    for names, papers in groups.items():
        cells = [f"{', '.join(settings)} | {paper}" for paper, settings in papers.items()]
        rows += [f"| {_listed(names, len(sourced))} | {cells[0]} |", *(f"| | {cell} |" for cell in cells[1:])]
    of_kinds = ", ".join(f"{number} {kind}" for kind, number in numbers.items())
    return "\n".join(
        [
            f"{len(sourced)} methods, {sum(numbers.values())} values: {of_kinds}.",
            "",
            "| methods | here | the paper |",
            "|---|---|---|",
            *rows,
        ]
    )


def _listed(names: Collection[str], number: int) -> str:
    if len(names) == number:
        return "all"
    listed = [f"`{name}`" for name in names]
    return ", ".join(listed) if len(names) <= 4 else f"{listed[0]} and {len(names) - 1} more"


def _short(path: str) -> str:
    """A setting's name without the training that it is of, so that equal rows join."""
    return re.sub(r"^regime\.(training|teacher|student)\.", "", path)


if __name__ == "__main__":
    PAGE.write_text(page_with_presets(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
