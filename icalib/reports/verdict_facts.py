"""What a verdict is built from, read from run folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow.compute as pc

from icalib.core.errors import DataError
from icalib.core.files import read_json
from icalib.core.run_folder import RunFolder
from icalib.core.storage import is_mirrored, local_path, location
from icalib.data.schema import POOLS_FILE
from icalib.metrics.significance import Interval
from icalib.reports.comparison import MethodRow, method_rows
from icalib.reports.paired_tests import MethodTest, paired_tests
from icalib.reports.verdict import MethodFacts, Verdict, verdict


def verdict_of(runs: Sequence[RunFolder], tests: Sequence[MethodTest] | None = None) -> Verdict:
    """Return what some runs on one pool set say; each labelled fraction is a comparison of its own.

    Args:
        runs: finished runs on the same pools.
        tests: their paired tests, if there is one labelled fraction and they are known already.
    """
    by_fraction: dict[float, list[RunFolder]] = {}
    for run in runs:
        by_fraction.setdefault(float(run.result["labelled"]), []).append(run)
    if len(by_fraction) == 1:
        return _verdict(runs, tests)
    parts = {fraction: _verdict(members, None) for fraction, members in sorted(by_fraction.items())}
    return Verdict(
        tuple(f"{fraction:.2%} labelled: {' '.join(part.sentences)}" for fraction, part in parts.items()),
        tuple(dict.fromkeys(warning for part in parts.values() for warning in part.warnings)),
    )


def _verdict(runs: Sequence[RunFolder], tests: Sequence[MethodTest] | None) -> Verdict:
    results = [run.result for run in runs]
    rows = method_rows(results)
    members = {row.label: [run for run in runs if run.result["method"] == row.label] for row in rows}
    facts = [method_facts(row, members[row.label]) for row in rows]
    return verdict(facts, _tests(members) if tests is None else tests, _data(results[0]))


def _tests(members: Mapping[str, Sequence[RunFolder]]) -> list[MethodTest]:
    try:
        return paired_tests(members) if len(members) > 1 else []
    except DataError:  # the tables say why
        return []


def method_facts(row: MethodRow, runs: Sequence[RunFolder]) -> MethodFacts:
    """Return the facts of one method from its runs."""
    names = dict.fromkeys(name for result in row.results for name in result["test"])
    return MethodFacts(
        label=row.label,
        is_trained=any(_is_trained(run) for run in runs),
        ranks=row.ranks,
        num_seeds=row.num_seeds,
        means={name: mean for name in names if (mean := row.mean(name)) is not None},
        ece=mean_interval(runs, "ECE"),
        rounds=tuple(summary for run in runs for summary in run.round_summaries()),
        num_labelled=_num_labelled(runs[0].config),
        kept_start=all(run.kept_start for run in runs),
    )


def _is_trained(run: RunFolder) -> bool:
    """Whether a run learnt from labels; post-training needs none."""
    return bool(set(run.training()["stage"].to_pylist()) - {"post_training"})


def mean_interval(runs: Sequence[RunFolder], metric: str) -> Interval | None:
    """Return the bootstrap interval of a test metric, its ends averaged over the runs; None where there is none."""
    tables = [run.metrics().filter((pc.field("split") == "test") & (pc.field("metric") == metric)) for run in runs]
    ends = [(table["low"][0].as_py(), table["high"][0].as_py()) for table in tables if table.num_rows]
    return Interval(*(fmean(side) for side in zip(*ends, strict=True))) if ends else None


def _num_labelled(config: Mapping[str, Any]) -> int | None:
    """The number of labelled pools; None where the pools are gone."""
    metadata = local_path(config["data"]) / POOLS_FILE
    if not metadata.is_file():
        return None
    total = read_json(metadata)["num_pools"].get("train", 0)
    return round(config["labelled"] * min(total, config["limit"].get("train") or total))


def _data(result: Mapping[str, Any]) -> str:
    """The pool folder as a command takes it: relative to the working directory where it is inside."""
    path, here = local_path(result["data"]), Path.cwd()
    is_inside = path.is_relative_to(here) and not is_mirrored(path)
    return str(path.relative_to(here)) if is_inside else location(path)
