"""What became of each trial of the campaign, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
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


@dataclass
class Tally:
    """Trials by kind."""

    trials: list[Trial] = field(default_factory=list[Trial])

    def add(self, trials: Iterable[Trial]) -> None:
        """Count trials, and print those that found a fault at once: a campaign may take hours."""
        for trial in trials:
            self.trials.append(trial)
            if trial.is_fault:
                print(f"{trial.kind} {trial.name}: {', '.join(trial.outcomes)}\n{trial.detail}\n", flush=True)

    @property
    def faults(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.is_fault]

    def table(self) -> str:
        """Return one row per kind: number of trials, and of each outcome."""
        names = get_args(Outcome)
        kinds = sorted({trial.kind for trial in self.trials})
        width = max(map(len, ("kind", *kinds)))
        lines = [f"{'kind':{width}}  {'trials':>7}" + "".join(f"{name:>12}" for name in names)]
        for kind in kinds:
            own = [trial for trial in self.trials if trial.kind == kind]
            counts = Counter(outcome for trial in own for outcome in trial.outcomes)
            lines.append(f"{kind:{width}}  {len(own):>7}" + "".join(f"{counts[name]:>12}" for name in names))
        return "\n".join(lines)
