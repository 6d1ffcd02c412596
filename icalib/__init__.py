"""Intent calibration: answer rankers whose probabilities can be trusted.

    >>> import icalib
    >>> icalib.list_methods()["bm25"]
    'BM25 of the candidate given the context; no training. A row of every comparison.'

Importing the package loads none of the heavy libraries (torch, ray, deepspeed, optuna, plotly): each function's module
is loaded when the function is first used. docs/api.md describes all of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from icalib.core.version import __version__ as __version__

if TYPE_CHECKING:
    from icalib.api.deploy import apply, calibrate, export, pair_texts
    from icalib.api.labels import evaluate_judged, label_ask, label_import, label_next, label_suspects
    from icalib.api.pools import prepare, preview
    from icalib.api.runs import compare, curve, load, run
    from icalib.api.sweeps import sweep
    from icalib.methods.catalogue import list_methods


__all__ = [
    "apply",
    "calibrate",
    "compare",
    "curve",
    "evaluate_judged",
    "export",
    "label_ask",
    "label_import",
    "label_next",
    "label_suspects",
    "list_methods",
    "load",
    "pair_texts",
    "prepare",
    "preview",
    "run",
    "sweep",
]

_MODULES = {
    "apply": "icalib.api.deploy",
    "calibrate": "icalib.api.deploy",
    "compare": "icalib.api.runs",
    "curve": "icalib.api.runs",
    "evaluate_judged": "icalib.api.labels",
    "export": "icalib.api.deploy",
    "label_ask": "icalib.api.labels",
    "label_import": "icalib.api.labels",
    "label_next": "icalib.api.labels",
    "label_suspects": "icalib.api.labels",
    "list_methods": "icalib.methods.catalogue",
    "load": "icalib.api.runs",
    "pair_texts": "icalib.api.deploy",
    "prepare": "icalib.api.pools",
    "preview": "icalib.api.pools",
    "run": "icalib.api.runs",
    "sweep": "icalib.api.sweeps",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
