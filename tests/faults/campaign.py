"""The whole campaign: damages, kills, refusing disks and stores, fuzzed input, and a table of what became of them.

    python tests/faults/campaign.py --minutes 60 --seed 1 --log campaign.jsonl

Each trial depends on seed and number alone, so that those that found a fault can be repeated. All parts advance
together: whenever the campaign is stopped, each has done about the same fraction of its trials.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

if TYPE_CHECKING:
    from faults.tally import Part

TRIALS = {
    "damages": 200, "kills": 200, "served": 30, "disks": 140, "stores": 40, "fuzzed": 10_000,
}  # fmt: skip
"""How many trials the campaign has of each part."""
_MOUNTS = "ICALIB_FAULTS_MOUNTS"


def main() -> int:
    """Run the campaign; return 1 if it found a fault."""
    options = _options()
    _be_allowed_to_mount()
    from faults.tally import Tally, in_turn

    until = time.monotonic() + 60 * options.minutes
    tally = Tally(options.log)
    with tempfile.TemporaryDirectory(prefix="icalib-faults-") as folder, ExitStack() as at_end:
        for part, number in in_turn(list(_parts(Path(folder), options, at_end))):
            if time.monotonic() > until:
                print(f"stopped after {options.minutes:g} minutes")
                break
            if not tally.has(part.name, f"{options.seed}/{number}"):
                tally.add(part.trial(number), part.name)
    print(tally.table())
    return 1 if tally.faults else 0


def _parts(root: Path, options: argparse.Namespace, at_end: ExitStack) -> Iterator[Part]:
    """Prepare a world, and what each part needs to know of it."""
    from faults.damages import damage_once
    from faults.disks import Disk, disturb_once
    from faults.fuzz import fuzz_once
    from faults.kills import Writing, kill_once
    from faults.parsers import artifacts, commands, readers, texts
    from faults.score_parsers import scores, served, settings
    from faults.serving import Serving
    from faults.stores import InStore
    from faults.tally import Part
    from faults.world import SWEEP_FOLDER, TRAINED, World
    from helpers.tiny_models import pool_texts, write_tiny_bert, write_tiny_pools

    disk = Disk(root / "disk") if os.environ.get(_MOUNTS) else None
    if disk is not None:
        at_end.callback(disk.unmount)
    pools = write_tiny_pools(root)
    world = World(root / "disk", pools, write_tiny_bert(root / "bert", pool_texts(pools)))
    seed, limit_s = options.seed, options.limit
    counts = {name: getattr(options, name) for name in TRIALS}
    if any(counts[name] for name in ("kills", "disks", "stores")):
        writing = Writing(world)
        in_store = InStore(writing)
        yield Part("kills", counts["kills"], lambda number: kill_once(writing, seed, number, limit_s))
        yield Part("disks", counts["disks"], lambda number: disturb_once(writing, seed, number, limit_s, disk))
        yield Part("stores", counts["stores"], lambda number: in_store.disturb_once(seed, number, limit_s))
    if counts["served"]:
        serving = Serving(world)
        yield Part("served", counts["served"], lambda number: serving.kill_once(seed, number, limit_s))
    yield Part("damages", counts["damages"], lambda number: damage_once(world, seed, number, limit_s))
    if counts["fuzzed"]:
        still = root / "still"
        shutil.copytree(world.pristine, still)
        own = artifacts(still, TRAINED, SWEEP_FOLDER)
        others = (*readers(), *texts(), *settings(), *scores(root / "scores"), *served(still))
        parsers = dict([*others, *own, *commands(still, TRAINED)])
        yield Part("fuzzed", counts["fuzzed"], lambda number: fuzz_once(parsers, seed, number, limit_s))


def _be_allowed_to_mount() -> None:
    """Start again in a namespace in which any user may mount file systems, where the system has such namespaces."""
    if os.environ.get(_MOUNTS) is not None:
        return
    inside = ["unshare", "--map-root-user", "--mount"]
    with tempfile.TemporaryDirectory() as folder:
        probe = [*inside, "mount", "-t", "tmpfs", "none", folder]
        can_mount = shutil.which("unshare") and not subprocess.run(probe, capture_output=True).returncode
    os.environ[_MOUNTS] = "1" if can_mount else ""
    if can_mount:
        os.execvp("unshare", [*inside, sys.executable, *sys.argv])
    print("full and read-only disks are left out: file systems can't be mounted here")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time; default: never")
    parser.add_argument("--seed", type=int, default=1, help="other seeds are other trials")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds after which a command counts as hung")
    parser.add_argument("--log", type=Path, help="file of finished trials, from which a campaign resumes")
    for part, count in TRIALS.items():
        parser.add_argument(f"--{part}", type=int, default=count, help=f"number of trials; default: {count}")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
