"""What became of each trial of the campaign, counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, get_args

Outcome: TypeAlias = Literal["identical", "recomputed", "refused", "different", "untyped", "hung", "leftovers"]
"""The same result without a word, the same result after a message, an error of icalib's own; and the faults: another
result, any other error, no end within a minute, files that should have been removed."""
FAULTS: tuple[Outcome, ...] = ("different", "untyped", "hung", "leftovers")


@dataclass(frozen=True)
class Trial:
    """One trial: how to name it in a report, and what became of it."""

    kind: str
    name: str
    outcomes: tuple[Outcome, ...]
    detail: str = ""

    @property
    def is_fault(self) -> bool:
        return any(outcome in FAULTS for outcome in self.outcomes)


@dataclass(frozen=True)
class Part:
    """A part of the campaign: how many trials it has, and what carries one out by its number."""

    name: str
    num_trials: int
    trial: Callable[[int], Trial]


def in_turn(parts: Sequence[Part]) -> Iterator[tuple[Part, int]]:
    """Yield the trials such that all parts have done about the same fraction, whenever the campaign is stopped."""
    moments = [
        ((number + 0.5) / part.num_trials, index, number)
        for index, part in enumerate(parts)
        for number in range(part.num_trials)
    ]
    for _, index, number in sorted(moments):
        yield parts[index], number


@dataclass
class Tally:
    """Trials by kind.

    Args:
        log: file with a JSON line for each trial, from which an interrupted campaign resumes; None: keep no file.
    """

    log: Path | None = None
    trials: list[Trial] = field(default_factory=list[Trial])
    _done: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def __post_init__(self) -> None:
        if self.log is not None and self.log.is_file():
            for line in self.log.read_text().splitlines():
                record = json.loads(line)
                self._done.add((record.pop("part"), record["name"]))
                self.trials.append(Trial(**{**record, "outcomes": tuple(record["outcomes"])}))

    def has(self, part: str, name: str) -> bool:
        """Return whether a trial is in the log."""
        return (part, name) in self._done

    def add(self, trial: Trial, part: str = "") -> None:
        """Count a trial, and print one that found a fault at once: a campaign may take hours."""
        self.trials.append(trial)
        if trial.is_fault:
            print(f"{trial.kind} {trial.name}: {', '.join(trial.outcomes)}\n{trial.detail}\n", flush=True)
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(json.dumps({"part": part, **asdict(trial)}) + "\n")

    @property
    def faults(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.is_fault]

    def table(self) -> str:
        """Return one row per kind: number of trials, and of each outcome; and one for all of them."""
        names = get_args(Outcome)
        kinds = sorted({trial.kind for trial in self.trials})
        width = max(map(len, ("kind", *kinds)))
        lines = [f"{'kind':{width}}  {'trials':>7}" + "".join(f"{name:>12}" for name in names)]
        for kind in (*kinds, "all"):
            own = [trial for trial in self.trials if kind in (trial.kind, "all")]
            counts = Counter(outcome for trial in own for outcome in trial.outcomes)
            lines.append(f"{kind:{width}}  {len(own):>7}" + "".join(f"{counts[name]:>12}" for name in names))
        return "\n".join(lines)
