"""What the conformance suites run on: everything that icalib has, and everything in some packages outside of it.

`ICALIB_CONFORMANCE=their_lab pytest tests/contracts` runs the suites on the package `their_lab`, which must be on the
path; several names are separated by commas. The default is the package of tests/outside.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeVar

from icalib.core.component import Component, ComponentConfig, Settings, components, validated
from icalib.data.negatives import NEGATIVE_SAMPLERS, NegativeSampler
from icalib.data.sources.readers import READERS
from icalib.data.sources.records import Reader
from icalib.methods.catalogue import method_names
from icalib.metrics.catalogue import known_metrics
from icalib.metrics.metric import Metric
from icalib.sweeps.space import space_names

S = TypeVar("S", bound=Settings)

OUTSIDE = tuple(os.environ.get("ICALIB_CONFORMANCE", "my_lab").split(","))
"""Packages outside of icalib."""

_REQUIRED: dict[str, dict[str, Any]] = {
    "External": {"model": "minilm"},
    "Untrained": {"scorer": "bm25"},
    "LanguageModel": {"model": "facebook/bart-base"},
}  # settings without defaults


def discovered(base: type[Component]) -> list[type[Component]]:
    """Return the concrete components of a base, sorted by name."""
    for package in OUTSIDE:
        import_all(package)
    found = components(base)
    return [found[name] for name in sorted(found) if found[name].__module__.partition(".")[0] in ("icalib", *OUTSIDE)]


def bases() -> list[type[Component]]:
    """Return the abstract base of every kind of component."""
    import_all("icalib")
    return [base for base in Component.__subclasses__() if base.__module__.startswith("icalib.")]


def settings_classes() -> list[type[Settings]]:
    """Return every class of settings that icalib has."""
    import_all("icalib")
    return [found for found in _subclasses(Settings) if found.__module__.startswith("icalib.")]


def default_config(owner: type[Component], **settings: Any) -> ComponentConfig:
    """Return a component's settings; those that have no default are chosen here."""
    return validated(owner.Config, {**_REQUIRED.get(owner.__name__, {}), **settings})


def methods() -> list[str]:
    """Return every method's name or import path."""
    return method_names() + _members("methods")


def spaces() -> list[str]:
    """Return every sweep space's name or import path."""
    return space_names() + _members("spaces")


def readers() -> list[str]:
    """Return every corpus reader's name or import path."""
    return [*READERS.names(), *_instances(Reader)]


def samplers() -> list[str]:
    """Return every negative sampler's name or import path."""
    return [*NEGATIVE_SAMPLERS.names(), *_instances(NegativeSampler)]


def metrics() -> list[str]:
    """Return every metric's name or import path."""
    return [*known_metrics(), *_instances(Metric)]


@cache
def import_all(package: str) -> None:
    """Import every module of a package, so that its classes are known."""
    for module in _modules(package):
        importlib.import_module(module)


def _instances(kind: type) -> list[str]:
    """Return the import path (`module:name`) of each value of a kind in the packages outside of icalib."""
    return [
        f"{module}:{name}"
        for package in OUTSIDE
        for module in _modules(package)
        for name, value in vars(importlib.import_module(module)).items()
        if isinstance(value, kind)
    ]


def _members(subpackage: str) -> list[str]:
    """Return the modules of a subpackage of each package outside of icalib."""
    return [
        module for package in OUTSIDE for module in _modules(package) if module.startswith(f"{package}.{subpackage}.")
    ]


def _modules(package: str) -> list[str]:
    """Return the import paths of a package's modules, without the packages themselves."""
    path = importlib.import_module(package).__path__
    found = [module.name for module in pkgutil.walk_packages(path, f"{package}.") if not module.ispkg]
    return [name for name in found if not name.endswith(".__main__")]


def _subclasses(base: type[S]) -> Iterator[type[S]]:
    for subclass in base.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)
