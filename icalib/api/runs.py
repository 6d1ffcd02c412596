"""`icalib.run`, `icalib.compare`, `icalib.curve` and `icalib.load`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from icalib.api.options import Place, RunKeywords, RunTemplate, changed, choice
from icalib.api.results import Comparison, Curve, Run
from icalib.api.session import command_line, session
from icalib.api.settings import check, comparison_settings, curve_settings, from_config, run_settings, with_test_pools
from icalib.core.errors import SettingError
from icalib.core.storage import local_path, push

if TYPE_CHECKING:
    from icalib.core.stage_cache import Stage
    from icalib.data.schema import Split
    from icalib.pipeline.config import RunConfig
    from icalib.pipeline.loaded_ranker import LoadedRanker


def run(
    method: str | Path,
    data: str | Path | None = None,
    *,
    labelled: float | None = None,
    seed: int | None = None,
    **options: Unpack[RunKeywords],
) -> Run:
    """Train and evaluate a method; the same call resumes an interrupted run and returns a finished one.

        icalib.run("icast", "pools/mine", labelled=0.05, settings={"regime.num_rounds": 2}, executor="local")

    Args:
        method: a method's name or import path, a variant such as pg-drr@head.kernel=matern, or the config.yaml of a
            run, whose settings then hold: none can be given beside it.
        data: pool folder that `prepare` wrote: a path or e.g. s3://bucket/pools.
        labelled: fraction of the training pools whose right answer the method sees; None uses the pool folder's.
        seed: root seed; None is 1.
        options: `RunKeywords`.
    """
    place, fresh = Place.of(options, known=RunKeywords), options.get("fresh", False)
    chosen = chosen_run(method, data, labelled, seed, options)
    check([chosen], place.runs, fresh=fresh)
    with session(place, fresh=fresh) as active:
        (finished,) = active.run_all([chosen])
    from icalib.reports.html import write_report

    write_report([finished], finished.path / "report.html", finished.name)
    return Run(finished.path)


def chosen_run(
    method: str | Path, data: str | Path | None, labelled: float | None, seed: int | None, options: RunKeywords
) -> RunConfig:
    """Return the settings of a run; the arguments are those of `run`."""
    if not str(method).endswith((".yaml", ".yml")):
        return run_settings(str(method), RunTemplate.of(options, data, labelled), 1 if seed is None else seed)
    if given := ", ".join(f"`{name}`" for name in changed(options, data=data, labelled=labelled, seed=seed)):
        raise SettingError(
            f"{method} has all settings of a run; found {given} beside it. Leave that out, or run a copy of the file "
            "in which you have changed it."
        )
    return from_config(local_path(method))


def dry_stages(chosen: Sequence[RunConfig], options: RunKeywords) -> list[Stage]:
    """Return the stages of some runs without computing any; errors are those of `check`."""
    from icalib.pipeline.dry import dry

    place, fresh = Place.of(options, known=RunKeywords), options.get("fresh", False)
    check(chosen, place.runs, fresh=fresh)
    return dry(chosen, place.runs.resolve(), fresh=fresh)


def compare(
    methods: Sequence[str],
    data: str | Path,
    *,
    labelled: float | None = None,
    seeds: int = 3,
    shift: Sequence[str | Path] = (),
    **options: Unpack[RunKeywords],
) -> Comparison:
    """Run several methods with several seeds; bm25, bi-encoder and candidates-only are added.

        icalib.compare(["bert", "tsst", "icast"], "pools/mine", labelled=0.05, seeds=5)

    Args:
        methods, data, labelled, options: as in `run`; settings and presets change every method that has them.
        seeds: runs of each method, with seeds 1 to this.
        shift: other pool folders, on whose test pools each run is evaluated too.
    """
    template = RunTemplate.of(options, data, labelled)
    others = with_test_pools([local_path(other) for other in ([shift] if isinstance(shift, (str, Path)) else shift)])
    chosen = comparison_settings(methods, template, seeds)
    check(chosen, template.runs, fresh=template.fresh)
    with session(template, fresh=template.fresh) as active:
        finished = active.run_all(chosen)
        limit = template.limit.get("test")
        shifts = [active.evaluate(folder, other, limit) for other in others for folder in finished]
    from icalib.reports.html import write_report

    folder, name = template.runs.absolute() / template.experiment, template.data.resolve().name
    report = write_report(finished, folder / f"compare-{name}.html", f"{', '.join(methods)} on {name}")
    _latest(report)
    return Comparison(tuple(Run(folder.path) for folder in finished), tuple(shifts), report)


def curve(
    methods: Sequence[str],
    data: str | Path,
    *,
    fractions: Sequence[float] = (0.01, 0.02, 0.05, 0.1, 0.2),
    seeds: int = 3,
    split: Split = "validation",
    **options: Unpack[RunKeywords],
) -> Curve:
    """Run methods with growing numbers of labels: how many are needed, and what is the next hundred worth?

        icalib.curve(["bert"], "pools/mine", fractions=[0.01, 0.03, 0.1], resample_labels=True)

    Smaller labelled parts are contained in larger ones, and stages that don't depend on labels are computed once.

    Args:
        methods, data, options: as in `compare`; the untrained methods are added as lines.
        fractions: labelled fractions of the training pools.
        seeds: runs of each method and fraction, with seeds 1 to this.
        split: pools that the curve is measured on: validation, to decide by it, or test.
    """
    from icalib.reports.label_curve import label_curve, write_label_curve

    measured = choice("split", split, ("validation", "test"))
    template = RunTemplate.of(options, data)
    untrained, by_fraction = curve_settings(methods, template, fractions, seeds)
    trained: dict[int, list[RunConfig]] = {}  # one point for each number of labels
    repeated: list[str] = []
    for fraction, configs in by_fraction.items():
        number = configs[0].num_labelled()
        if number in trained:
            repeated.append(f"{fraction:g} labels {number} pools, as a smaller fraction does: left out of the curve")
        else:
            trained[number] = configs
    check([*untrained, *chain.from_iterable(trained.values())], template.runs, fresh=template.fresh)
    with session(template, fresh=template.fresh) as active:
        for text in repeated:
            active.message(text)
        lines = active.run_all(untrained)
        runs = {number: active.run_all(configs) for number, configs in trained.items()}
    folder, name = template.runs.absolute() / template.experiment, template.data.resolve().name
    found = label_curve(name, measured, runs, lines)
    report = folder / f"curve-{name}.html"
    write_label_curve(found, report, command_line())
    push(report)
    _latest(report)
    return Curve(found, report)


def _latest(report: Path) -> None:
    """Copy a report to report.html of its experiment's folder, where it is found without knowing what was asked."""
    from icalib.core.files import atomic_write

    latest = report.with_name("report.html")
    with atomic_write(latest) as temporary:
        temporary.write_bytes(report.read_bytes())
    push(latest)


def load(run: str | Path) -> LoadedRanker:
    """Load a finished run's trained ranker into this process, on its GPU if it has one.

        ranker = icalib.load("runs/default/icast-mine-0.05-s1")
        ranker.rank(["My printer hums."], ["Restart it.", "Hello!"])

    A SettingError says that the run's method has no model to load.
    """
    from icalib.pipeline.loaded_ranker import LoadedRanker

    return LoadedRanker.load(local_path(run).absolute())  # some of its files are read when they are needed
