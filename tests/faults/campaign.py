"""The whole campaign: damages, kills and fuzzed input, and a table of what became of them.

    python tests/faults/campaign.py --trials 1000 --seed 1

Each trial depends on seed and number alone, so that those that found a fault can be repeated.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]


def main() -> int:
    """Run the campaign; return 1 if it found a fault."""
    options = _options()
    from faults.damages import damage
    from faults.fuzz import fuzz
    from faults.kills import Kills
    from faults.parsers import artifacts, commands, readers, texts
    from faults.tally import Tally
    from faults.world import SWEEP_FOLDER, TRAINED, World
    from helpers.tiny_models import pool_texts, write_tiny_bert, write_tiny_pools

    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="icalib-faults-") as folder:
        root = Path(folder)
        pools = write_tiny_pools(root)
        world = World(root, pools, write_tiny_bert(root / "bert", pool_texts(pools)))
        damages, kills, fuzzed = (
            _part(options.trials, part, of) for part, of in zip(options.parts, _PARTS, strict=True)
        )
        tally.add(damage(world, damages, options.seed, options.limit))
        if kills:
            tally.add(Kills(world).kill(kills, options.seed, options.limit))
        own = artifacts(world.pristine, TRAINED, SWEEP_FOLDER)
        parsers = dict([*readers(), *texts(), *own, *commands(world.pristine, TRAINED)])
        tally.add(fuzz(parsers, fuzzed, options.seed, options.limit))
    print(tally.table())
    return 1 if tally.faults else 0


_PARTS = (0.02, 0.02, 0.96)
"""Fractions of the trials: a damage or a kill takes as long as a hundred parsers."""


def _part(trials: int, wanted: int | None, fraction: float) -> int:
    return round(trials * fraction) if wanted is None else wanted


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_400, help="all trials together")
    parser.add_argument("--seed", type=int, default=1, help="other seeds are other trials")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds after which a command counts as hung")
    for part in ("damages", "kills", "fuzzed"):
        parser.add_argument(f"--{part}", type=int, help=f"number of {part}; default: a fraction of --trials")
    options = parser.parse_args()
    options.parts = (options.damages, options.kills, options.fuzzed)
    return options


if __name__ == "__main__":
    raise SystemExit(main())
