"""The stages of a run for people: what each does, and the table of `--dry`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from icalib.reports.comparison import MISSING, format_seconds
from icalib.reports.console import people_console, text_table

if TYPE_CHECKING:
    from icalib.pipeline.dry import DryStage

_PURPOSES: Mapping[str, str] = MappingProxyType(
    {
        "tokens": "reads the pools once, for every method",
        "log-tokens": "reads the dialogue logs",
        "generated-tokens": "reads the generated texts",
        "post-training": "adapts the backbone, without labels",
        "word-vectors": "learns words, without labels",
        "intent-classifier": "learns intents",
        "teacher": "trains on the labelled pools",
        "teacher-bi-encoder": "trains the bi-encoder on the labelled pools",
        "student-bi-encoder": "trains the bi-encoder on labels and pseudo labels",
        "student": "trains on labels and pseudo labels",
        "pseudo-labels": "chooses pools that the teacher is sure of",
    }
)


def purpose(stage: str) -> str:
    """Return what a stage does; empty for stages that are not known.

    Example:
        >>> purpose("round-2/student"), purpose("member-1/teacher"), purpose("mine")
        ('trains on labels and pseudo labels', 'trains on the labelled pools', '')
        >>> purpose("round-1/scores"), purpose("round-1/student/validation/scores")
        ('scores pools without labels', 'scores validation pools')
    """
    group, _, name = stage.rpartition("/")
    label = re.sub(r"-\d+$", "", name)
    if label == "scores":
        split = group.rpartition("/")[2]
        return "scores pools without labels" if split.startswith("round") else f"scores {split} pools"
    return _PURPOSES.get(label, "")


def print_stages(stages: Sequence[DryStage], runs: Path, console: Console | None = None) -> None:
    """Print the stages, those of the same name in one row, and the time of those that aren't cached."""
    console = console or people_console()
    groups: dict[str, list[DryStage]] = {}
    for stage in stages:
        groups.setdefault(str(stage.name), []).append(stage)
    rows = [(name, Text(purpose(name), "dim"), _state(group), _time(group)) for name, group in groups.items()]
    table = text_table(("stage", "", "state", "time"), rows, num_texts=3)
    table.add_section()
    table.add_row("all", "", _state(stages), _time(stages))
    console.print(table)
    if unknown := list(dict.fromkeys(stage.name.label for stage in stages if stage.seconds is None)):
        reason = f"no finished run under {runs} has such stages with this backbone"
        console.print(Text(f"unknown times ({', '.join(unknown)}): {reason}"), soft_wrap=True)
    if any(stage.seconds for stage in stages):
        console.print(Text(f"times: in proportion to the newest finished runs under {runs}"), soft_wrap=True)


def _state(stages: Sequence[DryStage]) -> str:
    cached = sum(stage.is_cached for stage in stages)
    if len(stages) == 1:
        return "cached" if cached else "to compute"
    return f"{cached} of {len(stages)} cached"


def _time(stages: Sequence[DryStage]) -> str:
    """Return the sum of the known times, as a minimum if there are others; empty if all stages are cached."""
    known = [stage.seconds for stage in stages if stage.seconds is not None]
    if all(stage.is_cached for stage in stages):
        return ""
    if len(known) < len(stages):
        return f"> {format_seconds(sum(known))}" if sum(known) else MISSING
    return format_seconds(sum(known))
