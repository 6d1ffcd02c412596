"""`icalib.sweep`."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from icalib.api.options import RunKeywords, RunTemplate, choice
from icalib.api.results import Sweep
from icalib.api.session import Session, command_line, session
from icalib.api.settings import preset_settings, run_settings
from icalib.core.component import module_digest
from icalib.core.errors import SettingError
from icalib.core.files import content_digest
from icalib.core.job import from_outside
from icalib.metrics.catalogue import find_metric

if TYPE_CHECKING:
    from icalib.methods.method import Method
    from icalib.pipeline.config import RunConfig
    from icalib.sweeps.folder import SweepFolder, SweepSettings
    from icalib.sweeps.space import Space
    from icalib.sweeps.study import Proposal
    from icalib.sweeps.sweep import RunTrials, SweepPlan


class SweepKeywords(RunKeywords, total=False):
    """What `sweep` takes besides the keywords of `run`."""

    method: str | None
    """Method to tune; default: the space's."""
    sampler: str | None
    """grid, random, tpe or nsga2; default: the space's."""
    pruner: str | None
    """none, median, asha or hyperband: stop poor trials by their first epochs or seeds; default: the space's."""
    seeds: int
    """Each trial runs with seeds 1 to this, and means count; default: 1."""
    concurrent: int | None
    """Number of trials at a time; default: one per GPU, or one per four CPU cores."""


def sweep(
    space: str,
    data: str | Path,
    *,
    labelled: float | None = None,
    trials: int | None = None,
    **options: Unpack[SweepKeywords],
) -> Sweep:
    """Try many settings of a method; the same call resumes, and with more trials adds some.

        icalib.sweep("icast_tpe", "pools/mine", trials=20)

    Trials are compared on validation pools; the best one alone is evaluated on test, at the end.

    Args:
        space: a tune space: its name, its file, or its import path.
        data, labelled: as in `run`.
        trials: total number of trials; None means a grid's points, else 20.
        options: `SweepKeywords`; `fresh` forgets the trials of the same sweep, cached stages are still reused.
    """
    template = RunTemplate.of(options, data, labelled, known=SweepKeywords)
    chosen, settings, base, note = _ask(space, template, options)
    from icalib.reports.sweep_views import write_views
    from icalib.sweeps.study import check_number
    from icalib.sweeps.sweep import sweep

    check_number(trials)  # before `fresh` removes what there is
    with session(template) as active:
        if note:
            active.message(note)
        plan, run_trials = _plan(active, trials, options.get("concurrent"))
        folder = sweep(settings, chosen, base, active.context, plan, run_trials, fresh=template.fresh)
    write_views(folder)
    return Sweep(folder.path)


def dry_sweep(
    space: str, data: str | Path, labelled: float | None, trials: int | None, options: SweepKeywords
) -> SweepFolder:
    """Count what each trial's thresholds would pseudo-label, without training students; the arguments are `sweep`'s."""
    template = RunTemplate.of(options, data, labelled, known=SweepKeywords)
    chosen, settings, base, note = _ask(space, template, options)
    from icalib.sweeps.dry import dry
    from icalib.sweeps.study import proposals
    from icalib.sweeps.sweep import claimed

    tried = proposals(chosen, base.settings, settings.sampler, trials)
    with session(template) as active:
        rows = dry(tried, base, settings.seeds, active.context)
        with claimed(settings, template.runs.resolve(), dry=True) as folder:
            if note:
                active.message(note)
            folder.write_dry(list(rows))
    return folder


def _ask(space: str, template: RunTemplate, options: SweepKeywords) -> tuple[Space, SweepSettings, RunConfig, str]:
    """Resolve and check the arguments of `sweep`; return also the run that proposals change, and what to say of it."""
    from icalib.data.pools import read_pool_set
    from icalib.pipeline.run import check_fits
    from icalib.sweeps.folder import SweepSettings
    from icalib.sweeps.space import PRUNERS, SAMPLERS, load_space
    from icalib.sweeps.study import proposals

    chosen = load_space(str(space))
    method = options.get("method") or chosen.method
    pruner = choice("pruner", options.get("pruner") or chosen.pruner, PRUNERS)
    if pruner != "none" and len(chosen.metrics) > 1:
        raise SettingError(
            f"the pruner {pruner} looks at one metric, and {', '.join(chosen.metrics)} are tuned. Leave it out."
        )
    base = run_settings(method, template)
    settings = SweepSettings(
        space=chosen.name,
        space_digest=_space_digest(chosen),
        method=base.method,
        method_digest=_digest(base.settings),
        data=base.data,
        data_digest=read_pool_set(base.data).digest,
        labelled=base.labelled,
        seeds=options.get("seeds", 1),
        limit=base.limit,
        settings={**preset_settings(method, template.preset), **template.settings},
        backbone=base.backbone,
        resample_labels=base.resample_labels,
        experiment=template.experiment,
        sampler=choice("sampler", options.get("sampler") or chosen.sampler, SAMPLERS),
        metrics=chosen.metrics,
        pruner=pruner,
        command=command_line(),
    )
    check_fits(base, read_pool_set(base.data))
    first, *_ = proposals(chosen, base.settings, settings.sampler, 1)  # errors in the space come before anything starts
    return chosen, settings, base, _ignored(chosen, template.settings, first)


def _space_digest(space: Space) -> str:
    """Return the digest of a space's file, and of the files of its metrics from outside."""
    functions = (metric.function or metric.per_pool for metric in map(find_metric, space.metrics))
    modules = [name for one in functions if not (name := str(getattr(one, "__module__", ""))).startswith("icalib.")]
    return content_digest([space.digest, *map(module_digest, modules)]) if modules else space.digest


def _digest(method: Method) -> str:
    """Return the digest of a method's settings, with the files of its components from outside."""
    settings, outside = method.model_dump(mode="json"), from_outside(method)
    return content_digest({"settings": settings, "outside": outside} if outside else settings)


def _ignored(chosen: Space, given: Collection[str], first: Proposal) -> str:
    """Return what to say of settings by --set that the space replaces in its first trial, and so probably in all."""
    if not (replaced := [path for path in given if path in first.settings]):
        return ""
    return (
        f"the space {chosen.name} sets {', '.join(replaced)} itself, so that --set has no effect there. To try other "
        f"values, change a copy of {chosen.file}."
    )


def _plan(active: Session, num_trials: int | None, concurrent: int | None) -> tuple[SweepPlan, RunTrials]:
    from icalib.sweeps.sweep import SweepPlan, run_here

    executor = active.context.executor
    if active.place.executor == "local":
        if concurrent not in (None, 1):
            raise SettingError(
                f"the local executor runs one trial at a time; found {concurrent}. Leave `concurrent` out, or use the "
                "ray executor."
            )
        return SweepPlan(num_trials, 1, executor.resources), run_here(executor)
    from icalib.distributed.session import available_to_trials
    from icalib.distributed.tune import run_by_tune

    each, at_once = available_to_trials(active.place.workers, concurrent)
    return SweepPlan(num_trials, at_once, each), run_by_tune
