"""The tables of a run folder that are extended while the run is in progress, from its events."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa

from icalib.core.events import Emit, Event, Message, Progress, RunUpdated, StageFinished
from icalib.core.files import read_json, read_json_list
from icalib.core.parquet import read_parquet
from icalib.core.run_folder import RunFolder
from icalib.core.run_tables import PSEUDO_LABEL_SCHEMA, TRAINING_SCHEMA, RoundSummary
from icalib.core.storage import location, push
from icalib.generation.job import SUMMARY, generated_texts

EVENTS = "events.jsonl"


class RunRecord:
    """Records a run's events in its folder, and forwards them; `RunUpdated` says that the folder has new content."""

    def __init__(self, folder: RunFolder, emit: Emit) -> None:
        self._folder, self._emit = folder, emit
        self._stages = {record["name"]: record for record in folder.stages}
        self._curves: list[StageFinished] = []
        self._lock = Lock()  # members of an ensemble train side by side

    def __call__(self, event: Event) -> None:
        """Record an event."""
        with self._lock:
            self._log(event)
            self._emit(event)
            if isinstance(event, StageFinished):
                self._add_stage(event)
                self._add_content(event)

    def _log(self, event: Event) -> None:
        """Append an event as a JSON line; progress within a stage is left out, since it says nothing afterwards."""
        if isinstance(event, Progress | RunUpdated):
            return
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "event": type(event).__name__, **asdict(event)}
        with (self._folder.path / EVENTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, default=str, ensure_ascii=False) + "\n")

    def show(self) -> None:
        """Announce new content, and copy the folder to its object store if it has one."""
        self._emit(RunUpdated(self._folder.path))
        push(self._folder.path)

    def _add_stage(self, stage: StageFinished) -> None:
        """Update stages.json; stages that the run computed before an interruption do not count as reused."""
        before = self._stages.get(stage.stage)
        own = before is not None and before["digest"] == stage.digest and not before["reused"]
        self._stages[stage.stage] = {
            "name": stage.stage,
            "digest": stage.digest,
            "reused": stage.reused and not own,
            "seconds": stage.seconds,
            "path": location(stage.path),
        }
        self._folder.write_json("stages.json", list(self._stages.values()))

    def _add_content(self, stage: StageFinished) -> None:
        if (stage.path / "curve.json").is_file():
            self._add_curve(stage)
        elif stage.label == "pseudo-labels":
            self._add_round(stage)
        elif (stage.path / SUMMARY).is_file():
            self._add_generated(stage)
        else:
            return
        self.show()

    def _add_curve(self, stage: StageFinished) -> None:
        """Add a learning curve; steps are cumulative over stages that follow each other.

        Those of an ensemble's members, which end in any order, begin where what they share has ended.
        """
        if (stage.stage, stage.digest) in {(one.stage, one.digest) for one in self._curves}:
            return  # rounds request some stages again
        self._curves = sorted([*self._curves, stage], key=_group)
        rows: list[dict[str, Any]] = []
        last_step, of_member = 0, dict[str, int]()
        for one in self._curves:
            _, group = _group(one)
            is_member = group.startswith("member-")
            label = (f"{group}_{one.label}" if is_member else one.label).replace("-", "_")
            begin = of_member.get(group, last_step) if is_member else last_step
            rows += [
                {**point, "stage": label, "round": one.round, "step": point["step"] + begin}
                for point in read_json_list(one.path / "curve.json")
            ]
            end = begin + int(read_json(one.path / "result.json")["updates"])
            if is_member:
                of_member[group] = end
            else:
                last_step = end
        self._folder.write_table("training.parquet", pa.Table.from_pylist(rows, schema=TRAINING_SCHEMA))

    def _add_generated(self, stage: StageFinished) -> None:
        summary = read_json(stage.path / SUMMARY)
        self._folder.write_table(f"generated/{stage.label}.parquet", pa.concat_tables(generated_texts(stage.path)))
        provenance = read_json(self._folder.path / "provenance.json")
        self._folder.write_json("provenance.json", {**provenance, "generated": summary})
        self._emit(
            Message(
                f"{stage.label.replace('-', ' ')}: {summary['generator']}; for {summary['num_pools']} pools "
                f"{summary['answers']} answers and {summary['contexts']} contexts"
            )
        )

    def _add_round(self, stage: StageFinished) -> None:
        summary = read_json(stage.path / "summary.json")
        folder = Path("rounds") / str(stage.round)
        shards = [read_parquet(path) for path in sorted(stage.path.glob("pseudo-*.parquet"))]
        labels = pa.concat_tables([PSEUDO_LABEL_SCHEMA.empty_table(), *shards])  # all pools may be labelled
        self._folder.write_table(f"{folder}/pseudo_labels.parquet", labels)
        self._folder.write_json(f"{folder}/summary.json", summary)
        self._emit(Message(_format_round(RoundSummary.model_validate(summary))))


def _group(stage: StageFinished) -> tuple[int, str]:
    """Return what orders groups of stages (none, member-2, round-10); within one, stages follow each other."""
    group = stage.stage.rpartition("/")[0]
    return len(group), group


def _format_round(summary: RoundSummary) -> str:
    if not summary.num_pools_scored:
        return f"round {summary.round}: there are no unlabelled pools to pseudo-label"
    parts = [
        f"round {summary.round}: {summary.num_pools_selected} of {summary.num_pools_scored} pools pseudo-labelled",
        f"{summary.share_with_intents:.0%} of pairs with intents",
    ]
    if summary.pool_accuracy is not None:
        parts[0] += f", {summary.pool_accuracy:.0%} of them right"
    if summary.validation_accuracy is not None:
        parts.append(f"{summary.validation_accuracy:.0%} right on validation")
    elif summary.validation_pools_selected == 0:
        parts.append("no threshold is precise enough on ten validation pools")
    elif summary.num_pools_selected == 0:
        parts.append("no p̄ passes the thresholds: --preset precise derives them from validation")
    return ", ".join(parts)
