"""What the API returns: values that show themselves as the tables which the command line prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from icalib.core.run_folder import RunFolder
    from icalib.pipeline.loaded_ranker import LoadedRanker
    from icalib.pipeline.why import Why
    from icalib.reports.label_curve import LabelCurve
    from icalib.reports.verdict import Verdict
    from icalib.sweeps.folder import Best, SweepFolder


@dataclass(frozen=True, repr=False)
class Run:
    """A finished run in the folder `path`."""

    path: Path

    @cached_property
    def folder(self) -> RunFolder:
        """Its tables: metrics with intervals, predictions, learning curves, rounds."""
        from icalib.core.run_folder import RunFolder

        return RunFolder.open(self.path)

    @cached_property
    def result(self) -> dict[str, Any]:
        """The object that `icalib run --json` prints: method, data, seed, metrics by split, seconds by stage."""
        return self.folder.result

    @property
    def metrics(self) -> Mapping[str, float]:
        """Metrics on the test pools, by name."""
        return self.result["test"]

    def load(self) -> LoadedRanker:
        """Load the trained ranker, as `icalib.load` does."""
        from icalib.pipeline.loaded_ranker import LoadedRanker

        return LoadedRanker.load(self.path)

    def why(self, pool_id: str) -> Why:
        """Follow a pool through the run: what `icalib why` shows."""
        from icalib.pipeline.why import why

        return why(self.path, pool_id)

    def export(self, out: str | Path, **options: Any) -> Path:
        """Write its ranker as a folder that other software loads, as `icalib.export` does."""
        from icalib.api.deploy import export

        return export(self.path, out, **options)

    def __repr__(self) -> str:
        from icalib.reports.terminal import print_result

        return printed(lambda console: print_result(self.result, console))


@dataclass(frozen=True, repr=False)
class Comparison:
    """Finished runs, one per method and seed, and their HTML report.

    `shifts` has the metrics on other pools, one object per run and pool set, as `icalib evaluate --json` prints them.
    """

    runs: tuple[Run, ...]
    shifts: tuple[dict[str, Any], ...]
    report: Path

    @property
    def verdict(self) -> Verdict:
        """What the results say, in sentences and warnings."""
        from icalib.reports.verdict import verdict_of

        return verdict_of([run.folder for run in self.runs])

    def by_method(self) -> dict[str, list[Run]]:
        """The runs of each method."""
        found: dict[str, list[Run]] = {}
        for run in self.runs:
            found.setdefault(str(run.result["method"]), []).append(run)
        return found

    def __repr__(self) -> str:
        from icalib.reports.terminal import print_runs, print_shifts

        def print_all(console: Console) -> None:
            folders = [run.folder for run in self.runs]
            print_runs(folders, console)
            print_shifts(self.shifts, folders, console)

        return printed(print_all)


@dataclass(frozen=True, repr=False)
class Curve:
    """Finished runs with growing numbers of labels: the points of each method, and the HTML report."""

    curve: LabelCurve
    report: Path

    @property
    def verdicts(self) -> dict[str, str]:
        """What each method's curve says, for people."""
        return self.curve.verdicts

    def __repr__(self) -> str:
        from icalib.reports.terminal import print_label_curve

        return printed(lambda console: print_label_curve(self.curve, console))


@dataclass(frozen=True, repr=False)
class Sweep:
    """A finished sweep in the folder `path`."""

    path: Path

    @cached_property
    def folder(self) -> SweepFolder:
        """Its tables: trials, the best trial's runs."""
        from icalib.sweeps.folder import SweepFolder

        return SweepFolder.open(self.path)

    @cached_property
    def best(self) -> Best | None:
        """The best trial with its settings, validation and test metrics; None if no trial was completed."""
        return self.folder.best()

    @property
    def config(self) -> Path | None:
        """The best trial's settings, which `icalib.run` takes in place of a method; None if there is no best trial."""
        return self.folder.best_config_path if self.best else None

    def __repr__(self) -> str:
        from icalib.reports.sweep_views import print_sweep

        return printed(lambda console: print_sweep(self.folder, console))


def printed(show: Callable[[Console], None]) -> str:
    """Return what a function prints, without colours."""
    from io import StringIO

    from icalib.reports.console import PlainConsole

    text = StringIO()
    show(PlainConsole(file=text, width=160, highlight=False, force_jupyter=False, color_system=None))
    return text.getvalue().strip("\n")
