"""How late dropout ranks pairs by g, and by the gain Δ of intents, compared with dropout in all layers.

    python benchmarks/late_dropout.py RUN [NUM_POOLS]     # a finished run of icast, or of mc-dropout (g alone)

Pools of the run's test split are scored with dropout in all layers, again with other masks, and with late dropout for
each k. Shown are Spearman's rank correlations with the first: what other masks leave of it is the noise of T passes,
above which no k can come. Below are the mean of g and the seconds. NUM_POOLS is 100 unless given.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

from icalib.data.selection import Selection
from icalib.encoders.transformer import BackboneEncoder
from icalib.pipeline.inference import FinishedRun
from icalib.scoring.gain import GainRule, choose_views
from icalib.scoring.scorer import score_pools
from icalib.scoring.untrained import selected_pools
from icalib.uncertainty.estimator import MCDropout

Floats = npt.NDArray[np.float64]


class Found(NamedTuple):
    """What T passes say of each pair: g, Δ (NaN where no intents are predicted) and logit; and how long they took."""

    information: Floats
    gain: Floats
    logit: Floats
    seconds: float


def main() -> None:
    """Score the pools in every way and print a table."""
    run, num_pools = FinishedRun.open(Path(sys.argv[1])), int(sys.argv[2]) if len(sys.argv) > 2 else 100
    members = run.load_members()
    context, (_, estimator) = members.contexts[0], run.members[0]
    assert isinstance(estimator, MCDropout.Config), "the run has another estimator than mc-dropout"
    encoder = context.ranker.config.encoder
    assert isinstance(encoder, BackboneEncoder.Config)
    num_layers = encoder.load_backbone_config().num_hidden_layers
    selection = Selection(labelled_fraction=1.0, limit={"test": num_pools})
    pools = selected_pools(run.settings.data, "test", selection)

    with tempfile.TemporaryDirectory() as folder:
        store = members.tokenize(pools, Path(folder) / "tokens.arrow")

        def scored(seed: int, dropout_layers: int | None) -> Found:
            config = estimator.model_copy(update={"dropout_layers": dropout_layers})
            started = time.perf_counter()
            scores, intents = score_pools(
                replace(context, estimator=config.build()),
                store, range(len(store)), with_intents=members.with_intents, seed=seed,
            )  # fmt: skip
            seconds = time.perf_counter() - started
            plain = choose_views(scores, intents, GainRule(gain_threshold=1.0))  # Δ never exceeds ln 2
            gain = np.where(plain.has_intents, plain.gain, np.nan)  # else both views are the same text, and Δ is 0
            return Found(plain.information, gain, plain.logit, seconds)

        exact = scored(1, None)
        others = {"all layers, other masks": scored(2, None)}
        others |= {f"k = {k}": scored(1, k) for k in range(num_layers, 0, -1)}

    print(f"{len(exact.logit)} pairs, T = {estimator.num_passes}, {num_layers} layers")
    print(f"  {'dropout in':<26}{'g':>8}{'Δ':>8}{'logit':>8}   {'mean g':>8}{'seconds':>9}")
    print(f"  {'all layers':<26}{'':>24}   {exact.information.mean():8.4f}{exact.seconds:9.1f}")
    for name, found in others.items():
        correlations = "".join(_correlation(ours, theirs) for ours, theirs in zip(found[:3], exact[:3], strict=True))
        print(f"  {name:<26}{correlations}   {found.information.mean():8.4f}{found.seconds:9.1f}")


def _correlation(ours: Floats, theirs: Floats) -> str:
    known = ~np.isnan(ours) & ~np.isnan(theirs)
    found: Any = spearmanr(ours[known], theirs[known]).statistic if known.any() else np.nan
    return f"{found:8.3f}"


if __name__ == "__main__":
    main()
