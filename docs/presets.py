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
    """Return the page with each marked table written anew."""
    return _MARKED.sub(lambda found: f"{found[1]}\n{table(found[2])}\n\n{found[3]}", text)


def preset_names() -> list[str]:
    """Return the presets of papers, without the alias `paper`."""
    return sorted({name for method in method_names() for name in presets(method) if name.startswith("paper-")})


def table(preset: str) -> str:
    """Return the deviations of one preset as Markdown, with the methods that each of them concerns."""
    sourced = {name: paper_preset(name, preset) for name in method_names() if preset in presets(name)}
    methods: dict[tuple[str, str, str], dict[str, None]] = {}
    numbers: Counter[str] = Counter()
    for name, values in sourced.items():
        numbers.update(counts(values))
        for path, value in values.items():
            if value.paper:
                row = (_short(path), json.dumps(value.value), value.paper)
                methods.setdefault(row, dict.fromkeys([name]))[name] = None
    rows = [
        f"| `{path}` | `{value}` | {paper} | {_listed(names, len(sourced))} |"
        for (path, value, paper), names in methods.items()
    ]
    of_kinds = ", ".join(f"{number} {kind}" for kind, number in numbers.items())
    return "\n".join(
        [
            f"{len(sourced)} methods, {sum(numbers.values())} values: {of_kinds}.",
            "",
            "| setting | here | the paper | methods |",
            "|---|---|---|---|",
            *rows,
        ]
    )


def _listed(names: Collection[str], number: int) -> str:
    if len(names) == number:
        return "all"
    few = [f"`{name}`" for name in names][:4]
    return ", ".join(few) if len(few) == len(names) else f"{', '.join(few)} and {len(names) - len(few)} more"


def _short(path: str) -> str:
    """A setting's name without the training that it is of, so that equal rows join."""
    return re.sub(r"^regime\.(training|teacher|student)\.", "", path)


if __name__ == "__main__":
    PAGE.write_text(page_with_presets(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
