"""The whole campaign: damages, kills, refusing disks and stores, fuzzed input, and a table of what became of them.

    python tests/faults/campaign.py --minutes 60 --seed 1

All parts advance together: whenever the campaign is stopped, each has done about the same fraction of its trials.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

if TYPE_CHECKING:
    from faults.trials import Trial

TRIALS = {"damages": 200, "kills": 200, "served": 30, "disks": 140, "stores": 40, "fuzzed": 10_000}
"""How many trials the campaign has of each part."""


def main() -> int:
    """Run the campaign; return 1 if it found a fault."""
    options = _options()
    counts = {part: getattr(options, part) for part in TRIALS if getattr(options, part)}
    trials: list[Trial] = []
    with tempfile.TemporaryDirectory(prefix="icalib-faults-") as folder:
        parts = _parts(Path(folder), counts, options.seed)
        until = time.monotonic() + 60 * options.minutes
        for part, number in in_turn(counts):
            if time.monotonic() > until:
                print(f"stopped after {options.minutes:g} minutes")
                break
            trials.append(parts[part](number))
            if trials[-1].is_fault:  # at once: a campaign may take hours
                print(f"{trials[-1]}\n", flush=True)
    print(table(trials))
    return 1 if any(trial.is_fault for trial in trials) else 0


def _parts(root: Path, counts: Mapping[str, int], seed: int) -> dict[str, Callable[[int], Trial]]:
    """Prepare a world, and return what carries out a trial of each part by its number."""
    from faults.fuzz import fuzz_once
    from faults.parsers import all_parsers
    from faults.serving import serve_once
    from faults.trials import DISKS, KILLS, STORES, damage_once, disturb_once
    from faults.world import IN_STORE, ON_DISK, WRITING, World
    from helpers.tiny_models import pool_texts, write_tiny_bert, write_tiny_pools

    pools = write_tiny_pools(root)
    world = World(root / "world", pools, write_tiny_bert(root / "bert", pool_texts(pools)))
    parsers = all_parsers(shutil.copytree(world.pristine, root / "still")) if "fuzzed" in counts else {}
    return {
        "damages": lambda number: damage_once(world, ON_DISK, seed, number),
        "kills": lambda number: disturb_once(world, KILLS, WRITING, seed, number),
        "disks": lambda number: disturb_once(world, DISKS, WRITING, seed, number),
        "stores": lambda number: disturb_once(world, STORES, IN_STORE, seed, number),
        "served": lambda number: serve_once(world, seed, number),
        "fuzzed": lambda number: fuzz_once(parsers, seed, number),
    }


def in_turn(counts: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield parts and numbers of trials such that all parts have done about the same fraction at any time."""
    moments = [((number + 0.5) / count, part, number) for part, count in counts.items() for number in range(count)]
    for _, part, number in sorted(moments):
        yield part, number


def table(trials: Sequence[Trial]) -> str:
    """Return one row per kind: number of trials, and of each outcome; and one for all of them."""
    from faults.trials import Outcome

    names = get_args(Outcome)
    kinds = sorted({trial.kind for trial in trials})
    width = max(map(len, ("kind", *kinds)))
    lines = [f"{'kind':{width}}  {'trials':>7}" + "".join(f"{name:>12}" for name in names)]
    for kind in (*kinds, "all"):
        own = [trial for trial in trials if kind in (trial.kind, "all")]
        counts = Counter(outcome for trial in own for outcome in trial.outcomes)
        lines.append(f"{kind:{width}}  {len(own):>7}" + "".join(f"{counts[name]:>12}" for name in names))
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="make no more trials after this time")
    parser.add_argument("--seed", type=int, default=1, help="other seeds are other trials")
    for part, count in TRIALS.items():
        parser.add_argument(f"--{part}", type=int, default=count, help=f"number of trials; default: {count}")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
