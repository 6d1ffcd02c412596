"""What a browser makes of a report."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path


class Page(HTMLParser):
    """Visible text, addresses the page asks for, and scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.addresses: list[str] = []
        self.scripts: list[str] = []
        self._in: str = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in = tag
        names = {"src", "href", "data", "srcset", "poster"}
        self.addresses += [value or "" for name, value in attrs if name in names]

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        (self.scripts if self._in == "script" else self.text).append(data)


def read_page(path: Path) -> Page:
    """Parse a report."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def visible(page: Page) -> str:
    """Its text, with single spaces."""
    return re.sub(r"\s+", " ", "".join(page.text))
