"""One damaged file in a cache, a run, a sweep or a pool folder, and then a verb that reads it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from faults.commands import Ended, renewed, run_command
from faults.tally import Outcome, Trial
from faults.world import World
from helpers.damage import delete, empty, flip_a_bit, truncate, write_garbage, write_other_json, zero_a_block

AREAS = ("runs/.cache", "runs/default", "pools", "other", "calibrator", "scored")
_NAMES = tuple(Path(area).name for area in AREAS)
MESSAGES = ("computing this stage again", "writing it again", "scoring it again")


def edit_parquet(path: Path, rng: random.Random) -> None:
    """Write a valid table with another value in one cell of a column of numbers."""
    table = pq.read_table(path)
    numbers = [
        index
        for index, field in enumerate(table.schema)
        if table.num_rows and (pa.types.is_floating(field.type) or pa.types.is_integer(field.type))
    ]
    if not numbers:
        truncate(path)
        return
    index, row = rng.choice(numbers), rng.randrange(table.num_rows)
    values = table.column(index).to_pylist()
    values[row] = 1 if values[row] in (0, None) else 0
    column = pa.array(values, table.schema.field(index).type)
    pq.write_table(table.set_column(index, table.schema.field(index), column), path)


def swap(path: Path, rng: random.Random) -> None:
    """Exchange a file with another of its kind in the same area."""
    area = next(parent for parent in path.parents if parent.name in _NAMES)
    others = sorted(one for one in area.rglob(f"*{path.suffix}") if one.is_file() and one != path)
    if not others:
        truncate(path)
        return
    other, aside = rng.choice(others), path.with_name("aside")
    path.rename(aside)
    other.rename(path)
    aside.rename(other)


KINDS: Mapping[str, Callable[[Path, random.Random], object]] = {
    "removed file": lambda path, rng: delete(path),
    "truncated file": lambda path, rng: truncate(path),
    "zeroed block": lambda path, rng: zero_a_block(path),
    "flipped bit": lambda path, rng: flip_a_bit(path),
    "edited Parquet": edit_parquet,
    "swapped files": swap,
    "unreadable JSON": lambda path, rng: rng.choice((write_garbage, write_other_json))(path),
    "empty file": lambda path, rng: empty(path),
}
_SUFFIXES = {"edited Parquet": (".parquet",), "unreadable JSON": (".json", ".yaml")}


def damage_once(world: World, seed: int, number: int, limit_s: float) -> Trial:
    """Damage a file and run a verb: kinds in turn, files and verbs by chance."""
    kind = sorted(KINDS)[number % len(KINDS)]
    rng = random.Random(f"{seed}/{kind}/{number}")
    name = rng.choice(sorted(world.verbs))
    verb = world.verbs[name]
    renewed(world.now, world.pristine)
    path = world.now / rng.choice(damageable(world.pristine, kind))
    KINDS[kind](path, rng)
    verb.first(world.now)
    ended = run_command(verb.arguments, world.now, limit_s=limit_s)
    outcome = outcome_of(ended, lambda: verb.result(ended, world.now) == world.results[name])
    left = [*ended.temporary, *leftovers(world.now)]
    outcomes: tuple[Outcome, ...] = (outcome, "leftovers") if left else (outcome,)
    detail = f"{path.relative_to(world.now)}, then {name}: {ended.err[-1500:]}\n{' '.join(left)}"
    return Trial(f"damage: {kind}", f"{seed}/{number}", outcomes, detail)


def outcome_of(ended: Ended, is_same: Callable[[], bool]) -> Outcome:
    """Return what became of a command in a damaged world."""
    if ended.hung:
        return "hung"
    if ended.refused:
        return "refused"
    if ended.code:
        return "untyped"
    if not is_same():
        return "different"
    return "recomputed" if any(message in ended.err for message in MESSAGES) else "identical"


def damageable(world: Path, kind: str) -> list[Path]:
    """Return the files that a kind of damage is done to, relative to the world."""
    suffixes = _SUFFIXES.get(kind, ())
    files = [path for area in AREAS for path in sorted((world / area).rglob("*")) if path.is_file()]
    relative = [path.relative_to(world) for path in files]
    return [
        path for path in relative if "tb" not in path.parts and ".locks" not in path.parts
        and not path.name.endswith(".lock") and path.suffix != ".html" and (not suffixes or path.suffix in suffixes)
    ]  # fmt: skip


def leftovers(folder: Path) -> list[str]:
    """Return temporary files that are left in a folder, which no process uses now."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.name.endswith(".tmp"))
