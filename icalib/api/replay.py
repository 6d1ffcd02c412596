"""What labels are worth where a run chooses the pools to label, replayed on pools whose labels are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from icalib.api.session import Session
    from icalib.core.run_folder import RunFolder
    from icalib.labelling.batches import By
    from icalib.pipeline.config import RunConfig


def replayed(
    active: Session, runs: Sequence[RunFolder], configs: Mapping[float, Sequence[RunConfig]], way: By, *, fresh: bool
) -> dict[float, Sequence[RunFolder]]:
    """Run methods with more labels than finished `runs` have, whose pools are chosen in one way; by labelled fraction.

    Each time the run with fewer labels chooses, as `label next` does; random labels are drawn as for any run. `configs`
    are by rising fraction, in the order of `runs`.
    """
    found: dict[float, Sequence[RunFolder]] = {}
    for fraction, given in configs.items():
        if way != "random":
            active.message(f"choosing labels for {fraction:.2%} of the pools: {way}")
            given = [_with_chosen(active, run, config, way) for run, config in zip(runs, given, strict=True)]
        found[fraction] = runs = active.run_all(given, fresh=fresh)
    return found


def _with_chosen(active: Session, run: RunFolder, config: RunConfig, way: By) -> RunConfig:
    """Return the settings of a run with more labels: those that the run with fewer has, and what it chooses."""
    from icalib.labelling.choose import Unlabelled, choose, training_predictions
    from icalib.pipeline.finished import FinishedRun

    finished = FinishedRun.open(run.path)
    unlabelled = Unlabelled.of(config.data, finished, with_known_label=True)
    number = config.num_labelled() - len(unlabelled.labelled)
    needs_scores = way in ("uncertain", "mixed")
    predictions = training_predictions(finished, unlabelled.data, active.context) if needs_scores else None
    chosen = choose(unlabelled, way, number, config.seed, finished, predictions)
    rows = np.concatenate([unlabelled.labelled, unlabelled.rows[chosen.indices]])
    return config.model_copy(
        update={"labelled_first": tuple(rows.tolist()), "experiment": f"{config.experiment}-{way}"}
    )
