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
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, get_args

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

if TYPE_CHECKING:
    from faults.trials import Trial

Part: TypeAlias = "tuple[int, Callable[[int], Trial]]"
"""How many trials there are, and what carries out the one of a number."""
PARTS = ("damages", "kills", "disks", "stores", "serving", "input")


def main() -> int:
    """Run the campaign; return 1 if it found a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="make no more trials after this time")
    parser.add_argument("--seed", type=int, default=1, help="other seeds are other trials")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS, help="default: all of them, in turn")
    options = parser.parse_args()
    trials: list[Trial] = []
    with tempfile.TemporaryDirectory(prefix="icalib-faults-") as folder:
        every = _parts(Path(folder), options.seed)
        parts = [every[name] for name in options.parts]
        until = time.monotonic() + 60 * options.minutes
        for carry_out, number in in_turn(parts):
            if time.monotonic() > until:
                print(f"stopped after {options.minutes:g} minutes")
                break
            trials.append(carry_out(number))
            if trials[-1].is_fault:  # at once: a campaign may take hours
                print(f"{trials[-1]}\n", flush=True)
    print(table(trials))
    return 1 if any(trial.is_fault for trial in trials) else 0


def _parts(root: Path, seed: int) -> dict[str, Part]:
    """Prepare a world and what is tried in it."""
    from faults.fuzz import fuzz_once
    from faults.parsers import all_parsers
    from faults.serving import serve_once
    from faults.trials import DISKS, KILLS, STORES, damage_once, disturb_once
    from faults.world import IN_STORE, ON_DISK, WRITING, World
    from helpers.tiny_models import pool_texts, write_tiny_bert, write_tiny_pools

    pools = write_tiny_pools(root)
    world = World(root / "world", pools, write_tiny_bert(root / "bert", pool_texts(pools)))
    parsers = all_parsers(shutil.copytree(world.pristine, root / "still"))
    return {
        "damages": (200, partial(damage_once, world, ON_DISK, seed)),
        "kills": (200, partial(disturb_once, world, KILLS, WRITING, seed)),
        "disks": (140, partial(disturb_once, world, DISKS, WRITING, seed)),
        "stores": (40, partial(disturb_once, world, STORES, IN_STORE, seed)),
        "serving": (30, partial(serve_once, world, seed)),
        "input": (10_000, partial(fuzz_once, parsers, seed)),
    }


def in_turn(parts: Sequence[Part]) -> Iterator[tuple[Callable[[int], Trial], int]]:
    """Yield trials such that all parts have done about the same fraction at any time."""
    moments = [((n + 0.5) / count, index, n) for index, (count, _) in enumerate(parts) for n in range(count)]
    return ((parts[index][1], number) for _, index, number in sorted(moments))


def table(trials: Sequence[Trial]) -> str:
    """Return one row per kind: number of trials, and of each outcome; and one for all of them."""
    from faults.trials import Outcome

    names = get_args(Outcome)
    rows: list[tuple[object, ...]] = [("kind", "trials", *names)]
    for kind in (*sorted({trial.kind for trial in trials}), "all"):
        own = [trial for trial in trials if kind in (trial.kind, "all")]
        counts = Counter(outcome for trial in own for outcome in trial.outcomes)
        rows.append((kind, len(own), *(counts[name] for name in names)))
    return "\n".join(f"{kind:30}" + "".join(f"{cell:>12}" for cell in cells) for kind, *cells in rows)


if __name__ == "__main__":
    raise SystemExit(main())
