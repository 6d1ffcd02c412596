"""`icalib.sweep`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from icalib.api.options import Place, RunKeywords, RunTemplate, choice
from icalib.api.results import Sweep
from icalib.api.session import Session, command_line, session
from icalib.api.settings import check, preset_settings, run_settings
from icalib.core.display import display
from icalib.core.errors import SettingError

if TYPE_CHECKING:
    from icalib.pipeline.run import RunSettings
    from icalib.reports.sweep_terminal import SweepProgress
    from icalib.sweeps.folder import SweepFolder, SweepSettings
    from icalib.sweeps.proposals import Proposal
    from icalib.sweeps.space import Space
    from icalib.sweeps.sweep import Keep, RunTrials, SweepPlan


class SweepKeywords(RunKeywords, total=False):
    """What `sweep` takes besides the keywords of `run`."""

    method: str | None
    """Method to tune; default: the space's."""
    sampler: str | None
    """grid, random, tpe, nsga2 or qmc; default: the space's."""
    pruner: str | None
    """none, median, asha or hyperband: stop poor trials by their first epochs or seeds; default: the space's."""
    seeds: int
    """Each trial runs with seeds 1 to this, and means count; default: 1."""
    concurrent: int | None
    """Number of trials at a time; default: one per GPU, or one per four CPU cores."""
    keep: str
    """best or all: whose models are kept when the sweep is over; default: best."""


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

    Trials are compared on validation pools. The best one alone is evaluated on test, at the end.

    Args:
        space: a tune space: its name, its file, or its import path.
        data: pool folder that `prepare` wrote.
        labelled: as in `run`.
        trials: total number of trials; None means a grid's points, else 20.
        options: method, sampler, pruner, seeds, concurrent, keep, and those of `run`; `fresh` forgets the trials of
            the same sweep, and cached stages are still reused. The local executor runs one trial after the other.

    Raises:
        SettingError: an option is invalid, or the space's method doesn't fit the data.
    """
    asked = ask(space, data, labelled, trials, options)
    place = Place.of(options)
    from icalib.reports.sweep_views import write_views

    folder = _sweep(asked, place, options)
    write_views(folder)
    return Sweep(folder.path)


def dry_sweep(
    space: str, data: str | Path, labelled: float | None, trials: int | None, options: SweepKeywords
) -> SweepFolder:
    """Count what each trial's thresholds would pseudo-label, without training students; the arguments are `sweep`'s.

    Raises:
        SettingError: see `sweep`.
    """
    asked = ask(space, data, labelled, trials, options)
    place = Place.of(options)
    from icalib.sweeps.dry import dry
    from icalib.sweeps.sweep import claimed

    with session(place) as active, claimed(asked.settings, place.runs.resolve()) as folder:
        _warn_of_pruner(asked, active)
        folder.write_dry(list(dry(asked.proposals, asked.base, asked.settings.seeds, active.context)))
    return folder


@dataclass(frozen=True)
class Asked:
    """A sweep that has been checked, before anything is computed.

    Attributes:
        space: proposes settings.
        settings: of the sweep.
        base: the run that proposals change.
        num_trials: total number of trials; None means the space's default.
        proposals: what would be tried if nothing were learnt from trials.
        idle_pruner: why the pruner would stop no trial; None if it could.
    """

    space: Space
    settings: SweepSettings
    base: RunSettings
    num_trials: int | None
    proposals: list[Proposal]
    idle_pruner: str | None


def ask(space: str, data: str | Path, labelled: float | None, trials: int | None, options: SweepKeywords) -> Asked:
    """Resolve and check the arguments of `sweep`.

    Raises:
        SettingError: one of them is invalid.
    """
    from icalib.data.pools import read_pool_set
    from icalib.sweeps.folder import SweepSettings
    from icalib.sweeps.proposals import proposals
    from icalib.sweeps.space import PRUNERS, SAMPLERS, load_space
    from icalib.sweeps.sweep import why_nothing_is_pruned

    chosen = load_space(space)
    template = RunTemplate.of(data, labelled, options)
    method, pruner = options.get("method") or chosen.method, options.get("pruner")
    base = run_settings(method, template)
    settings = SweepSettings(
        space=chosen.name,
        space_digest=chosen.digest,
        method=base.method,
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
        metrics=dict(chosen.metrics),
        pruner=choice("pruner", pruner or chosen.pruner, PRUNERS),
        command=command_line(),
    )
    check([base])
    tried = proposals(chosen, base.settings, settings.sampler, trials)
    idle = why_nothing_is_pruned(settings, tried)
    if idle and pruner:
        raise SettingError(f"`pruner` {pruner} would stop no trial: {idle}. Leave it out.")
    return Asked(chosen, settings, base, trials, tried, idle)


def _warn_of_pruner(asked: Asked, active: Session) -> None:
    if asked.idle_pruner:
        active.message(f"the pruner {asked.settings.pruner} will stop no trial: {asked.idle_pruner}")


def _sweep(asked: Asked, place: Place, options: SweepKeywords) -> SweepFolder:
    from icalib.reports.json_lines import JsonLines
    from icalib.reports.progress import TerminalProgress, progress_console
    from icalib.reports.sweep_terminal import SweepProgress
    from icalib.sweeps.sweep import KEPT, sweep

    keep = choice("keep", options.get("keep", "best"), KEPT)
    console = progress_console()  # one for both displays, otherwise they write over each other
    progress = JsonLines() if display().log_format == "json" else TerminalProgress(console)
    with SweepProgress(asked.settings.metrics, console) as shown, session(place, progress) as active:
        _warn_of_pruner(asked, active)
        plan, run_trials = _plan(asked, active, options.get("concurrent"), keep, shown)
        fresh = options.get("fresh", False)
        return sweep(asked.settings, asked.space, asked.base, active.context, plan, run_trials, fresh=fresh)


def _plan(
    asked: Asked, active: Session, concurrent: int | None, keep: Keep, shown: SweepProgress
) -> tuple[SweepPlan, RunTrials]:
    """How trials are run: by Ray Tune side by side, or in this process one after the other."""
    from icalib.reports.sweep_trials import sweep_trials
    from icalib.sweeps.sweep import SweepPlan, run_here, sweep_folder_of

    place, executor = active.place, active.context.executor
    if place.executor == "local":
        each, at_once, run_trials = executor.resources, 1, run_here(executor)
    else:
        from icalib.distributed.session import available_to_trials
        from icalib.distributed.tune import run_by_tune

        each, at_once = available_to_trials(place.workers, concurrent)
        run_trials = run_by_tune
    folder = sweep_folder_of(asked.settings, place.runs.resolve())

    def on_end(number: int) -> None:
        shown.trial_finished(next(trial for trial in sweep_trials(folder) if trial.number == number))

    plan = SweepPlan(
        num_trials=asked.num_trials,
        concurrent=at_once,
        each=each,
        keep=keep,
        on_start=lambda folder, num_trials: shown.sweep_started(sweep_trials(folder), num_trials),
        on_begin=lambda proposal: shown.trial_started(proposal.number, proposal.settings),
        on_end=on_end,
    )
    return plan, run_trials
