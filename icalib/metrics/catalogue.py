"""All metrics: those of icalib, those of installed packages, and any other by its import path.

Entry points `icalib.metrics` of packages name `Metric` values. Others are named as `my_lab.metrics:mean_rank` in the
`METRICS` of a sweep space or the `metrics` of a run's settings; that path is also their name in metrics.parquet, so
that reports find them again. docs/extend/README.md names an example.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType

from icalib.core.errors import SettingError
from icalib.core.imports import Extensions
from icalib.core.text import did_you_mean
from icalib.metrics.builtin import BUILTIN
from icalib.metrics.metric import Metric

OUTSIDE = Extensions(kind=Metric, setting="metric", group="icalib.metrics", builtin={})
"""Metrics of other packages."""


@cache
def known_metrics() -> Mapping[str, Metric]:
    """Return the metrics of every run by name, in the order of tables: icalib's, then installed packages'.

    A SettingError says that a package's metric can't be loaded, or that its name is taken.
    """
    found = {metric.name: metric for metric in BUILTIN}
    for entry in sorted(OUTSIDE.names()):
        metric = OUTSIDE.load(entry)
        if metric.name in found:
            raise SettingError(f"entry point `{entry}`: there already is a metric {metric.name!r}. Rename one of them.")
        found[metric.name] = metric
    return MappingProxyType(found)


def find_metric(reference: str) -> Metric:
    """Return the metric with a name, or at an import path `module:name`; a SettingError if there is none."""
    if reference in known_metrics():
        return known_metrics()[reference]
    if ":" in reference:
        found = OUTSIDE.load(reference)
        if known_metrics().get(found.name, found) is not found:
            raise SettingError(f"{reference}: there already is a metric {found.name!r}. Give this one another name.")
        return found
    hint = did_you_mean(reference, known_metrics(), 3)
    raise SettingError(
        f"no metric {reference!r}.{hint} There are: {', '.join(known_metrics())}; any other takes its import path, "
        "e.g. my_lab.metrics:mean_rank."
    )


def metrics_among(names: Iterable[str]) -> dict[str, Metric]:
    """Return the metrics among the names in a metrics table, in the order of tables.

    Left out are values after post-hoc calibration (`ECE@platt`), and metrics of packages that this machine lacks.

    Example:
        >>> list(metrics_among(["NLL", "ECE@platt", "R@1"]))
        ['R@1', 'NLL']
    """
    names = tuple(names)
    found = {name: metric for name, metric in known_metrics().items() if name in names}
    for name in names:
        if ":" in name:
            try:
                found[name] = find_metric(name)
            except SettingError:
                continue
    return found


def metric_tag(name: str) -> str:
    """Return the TensorBoard tag of a name in a metrics table.

    Example:
        >>> metric_tag("R@1"), metric_tag("ECE@platt"), metric_tag("num_pools")
        ('rank/R@1', 'cal/ECE@platt', 'data/num_pools')
    """
    base, at, calibrator = name.partition("@")
    found = metrics_among([name, base])
    if name in found:
        return found[name].tag
    return f"{found[base].tag if base in found else f'data/{base}'}{at}{calibrator}"
