"""What all HTML reports have in common: one self-contained page, figures as JSON, numbers for people."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from plotly.utils import PlotlyJSONEncoder

from icalib.core.files import atomic_write
from icalib.reports.comparison import format_difference, format_p, format_seconds, format_share, format_value, heading

LIBRARY = Path(__file__).parent / "plotly-basic.min.js.gz"
"""Plotly.js 4.1.1 with lines, dots, bars and no more (npm: plotly.js-basic-dist-min, MIT): all of it has four times the
size. A page carries it compressed, and the browser unpacks it."""


def write_page(template: str, out: Path, **content: Any) -> Path:
    """Fill a template of this folder and write the page, which needs no network access; returns `out`."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "value": format_value,
        "seconds": format_seconds,
        "share": format_share,
        "p": format_p,
        "difference": format_difference,
        "heading": heading,
        "commands": _commands,
    }
    page = environment.get_template(template).render(library=b64encode(LIBRARY.read_bytes()).decode(), **content)
    with atomic_write(out) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return out


def _commands(text: str) -> Markup:
    """Text whose parts in backquotes are code."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))


def figure_json(figure: go.Figure) -> Markup:
    """The figure as JSON that can be inside a script element; the page supplies the template."""
    figure.layout.template = None
    return Markup(json.dumps(figure.to_plotly_json(), cls=PlotlyJSONEncoder).replace("<", "\\u003c"))
