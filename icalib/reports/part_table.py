"""What each part of a ranker gave: weight, R@1 and NLL alone and in the sum, on validation."""

from __future__ import annotations

from collections.abc import Mapping

from icalib.core.run_folder import RunFolder
from icalib.reports.comparison import format_value

HEADINGS = ("method", "part", "weight", "R@1", "NLL")


def part_rows(runs: Mapping[str, RunFolder]) -> list[tuple[str, ...]]:
    """Return the rows of each run's parts and of their sum; a part that isn't run has no weight."""
    rows: list[tuple[str, ...]] = []
    for label, run in runs.items():
        for fitted in run.parts:
            if fitted["recall"] is None:  # one part alone, with w = 1 and b = 0
                rows.append((label, fitted["parts"][0]["name"], "1", "–", "–"))
                continue
            for part in fitted["parts"]:
                weight = f"{part['weight']:.3g}" if part["weight"] else "not run"
                rows.append((label, part["name"], weight, format_value(part["recall"]), format_value(part["nll"])))
            rows.append(
                (label, "sum", f"{fitted['offset']:+.3g}", *map(format_value, (fitted["recall"], fitted["nll"])))
            )
    return rows
