"""The catalogue of methods: those of this package by name, all others by import path."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from icalib.core.errors import SettingError
from icalib.core.imports import docstring, failed, import_module
from icalib.core.text import did_you_mean, short_repr, shortened
from icalib.methods.papers import Preset, plain

if TYPE_CHECKING:
    from icalib.methods.method import Method
    from icalib.regimes.pseudo_labels import PseudoLabelRule

EXTERNAL = "external:"
"""Begins the name of a method that is a stock reranker: `external:` and its folder or hub name."""


def method_names() -> list[str]:
    """Return the names of the methods of this package, as the command line writes them."""
    import icalib.methods as package

    names = [module.name.replace("_", "-") for module in pkgutil.iter_modules(package.__path__)]
    return [name for name in names if name not in ("catalogue", "method", "papers")]


def list_methods() -> dict[str, str]:
    """Return the description of each method of this package, by name: the first line of its module's docstring."""
    return {name: describe(name) for name in method_names()}


def describe(name: str) -> str:
    """Return the first line of the docstring of a method's module; this package's modules are read, not imported."""
    if name.startswith(EXTERNAL):
        return f"The stock reranker {name.removeprefix(EXTERNAL)}, as it was downloaded; no training."
    text = _module(name).__doc__ if "." in name else docstring(module_path(name))
    return next(iter((text or "").strip().splitlines()), "")


def load_method(name: str) -> Method:
    """Load the method of a name (`icast-teacher`), an import path (`my_lab.methods.idea7`), or `external:MODEL`.

    Raises:
        SettingError: there is no such method; the message suggests similar names.
    """
    if name.startswith(EXTERNAL):
        return _external(name.removeprefix(EXTERNAL))
    module = _module(name)
    from icalib.methods.method import Method  # after the check of the name: it imports torch

    made = getattr(module, "method", None)
    if made is None:
        raise SettingError(f"the module `{module.__name__}` has no function `method()` that returns a Method.")
    if not callable(made):
        raise SettingError(
            f"`{module.__name__}.method` is {short_repr(made)}, expected a function that returns a Method."
        )
    try:
        method = made()
    except (Exception, SystemExit) as error:
        raise failed(f"`{module.__name__}.method()` failed", error) from error
    if not isinstance(method, Method):
        raise SettingError(f"`{module.__name__}.method()` returned {type(method).__name__}, expected a Method.")
    return method


def label(name: str) -> str:
    """Return the name of a method as run folders and tables have it.

    Example:
        >>> label("my_lab.methods.idea7"), label("external:cross-encoder/ms-marco-MiniLM-L6-v2")
        ('idea7', 'external-cross-encoder-ms-marco-MiniLM-L6-v2')
    """
    if not name.startswith(EXTERNAL):
        return name.rpartition(".")[2]
    model = name.removeprefix(EXTERNAL)
    shown = Path(model).resolve().name if Path(model).is_dir() else model.rpartition("://")[2]
    return "external-" + re.sub(r"[^\w.-]+", "-", shown).strip("-")


def _external(model: str) -> Method:
    if not model:
        raise SettingError("`external:` lacks a model: write e.g. external:cross-encoder/ms-marco-MiniLM-L6-v2.")
    from icalib.methods.method import Method
    from icalib.regimes.untrained import External

    return Method(regime=External.Config(model=model), domain_pretraining=None, similarity=None, intent=None)


def presets(name: str) -> dict[str, dict[str, Any]]:
    """Return a method's named sets of dotted settings: those of its module, such as `light` or `paper-icast`.

    `paper` is the preset of the one paper that a method has; one that several papers compare with, such as `bert`, has
    a preset for each. Self-training has `precise`: thresholds of pseudo labels that are fractions of right ones on
    validation. Methods that can do without their cross-encoder have `bi-encoder`: the sum of the other parts, with what
    suits these, which are cheap: ten passes, thresholds that are fractions of right labels and p̄ over the pool.
    """
    found = {preset: plain(values) for preset, values in _named(name).items()}
    if name.startswith(EXTERNAL):
        return found
    from icalib.regimes.self_training import SelfTraining

    method = load_method(name)
    if isinstance(method.regime, SelfTraining.Config):
        found["precise"] = _precise(method.regime.rule)
    plain_cross = (method.head.owner.__name__, method.loss.owner.__name__) == ("LinearHead", "BinaryCrossEntropy")
    if (
        method.regime.trains
        and method.similarity is not None
        and method.uncertainty.needs != "posterior"
        and plain_cross
    ):
        found["bi-encoder"] = found.get("precise", {}) | {"cross": False}
        if "precise" in found:
            found["bi-encoder"]["regime.rule.over_pool"] = True
        if method.uncertainty.needs == "dropout":
            found["bi-encoder"]["uncertainty.num_passes"] = 10  # as in GPF-BERT and PG-DRR: cheap without pairs
    return found


def paper_preset(name: str, preset: str) -> Preset:
    """Return the values of a paper's preset with their sources; nothing for another preset, or one it doesn't have."""
    return _named(name).get(preset, {}) if is_of_paper(preset) else {}


def is_of_paper(preset: str | None) -> bool:
    """Whether a preset is one of a paper's values, by its name."""
    return preset is not None and (preset == "paper" or preset.startswith("paper-"))


def _named(name: str) -> dict[str, Any]:
    """Return the presets of a method's module; `paper` is its only one of a paper."""
    if name.startswith(EXTERNAL):
        return {}
    module = _module(name)
    own = getattr(module, "presets", {})
    if not (isinstance(own, dict) and all(isinstance(values, dict) for values in own.values())):
        raise SettingError(
            f"`{module.__name__}.presets` is {short_repr(own)}, expected a dict of dicts: settings by name."
        )
    of_papers = [preset for preset in own if is_of_paper(preset)]
    return own | ({"paper": own[of_papers[0]]} if len(of_papers) == 1 else {})


def _precise(rule: PseudoLabelRule) -> dict[str, Any]:
    """Return the changes to precisions; what a rule disables stays so."""
    from icalib.regimes.pseudo_labels import NO_CALIBRATION, PseudoLabelRule

    changed = PseudoLabelRule.precisions().model_dump(exclude_defaults=True)
    if rule.confidence_threshold >= NO_CALIBRATION:
        del changed["confidence_threshold"]
    return {f"regime.rule.{name}": value for name, value in changed.items()}


def _module(name: str) -> ModuleType:
    return import_module(module_path(name), "method module")


def module_path(name: str) -> str:
    """Return the import path of a method's module; it isn't imported, which would take seconds.

    Raises:
        SettingError: no method of this package has that name.
    """
    path = name if "." in name else f"icalib.methods.{name.replace('-', '_')}"
    if name.endswith(".py") or "/" in name:
        raise SettingError(
            f"`{shortened(name)}` is a path, and a method is named by its import path, such as my_lab.methods.idea7. "
            "Put the folder that contains my_lab on PYTHONPATH; `icalib methods` lists the methods that have names."
        )
    if "." not in name and name.replace("_", "-") not in method_names():
        hint = did_you_mean(name, method_names(), 3)
        raise SettingError(f"no method `{shortened(name)}`.{hint} `icalib methods` lists them all.")
    return path
