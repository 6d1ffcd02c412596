"""What was run, as a report says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from icalib.core.files import read_json, reading
from icalib.core.run_folder import RunFolder
from icalib.core.run_tables import RoundSummary
from icalib.core.storage import local_path
from icalib.data.schema import POOLS_FILE, SPLITS
from icalib.reports.comparison import MISSING, format_seconds, format_share


@final
@dataclass(frozen=True)
class RunFacts:
    """What was run: from config.yaml, provenance.json, stages.json and result.json."""

    name: str
    seed: int
    labelled: str
    pools: tuple[str, ...]
    duration: str
    command: str
    started: str
    environment: str
    stages: tuple[Mapping[str, Any], ...]
    summaries: tuple[RoundSummary, ...]


def run_facts(run: RunFolder) -> RunFacts:
    """Return what was run in a folder."""
    with reading(run.path):  # its files have what was written unless someone removed their digests
        config, provenance = run.config, read_json(run.path / "provenance.json")
        return RunFacts(
            name=run.name,
            seed=config["seed"],
            labelled=format_share(config["labelled"]),
            pools=_pools_used(config),
            duration=format_seconds(run.result["seconds"]["total"]),
            command=provenance["command"],
            started=provenance["started"][:16].replace("T", " "),
            environment=_environment(provenance),
            stages=tuple(run.stages),
            summaries=tuple(run.round_summaries()),
        )


def _environment(provenance: Mapping[str, Any]) -> str:
    versions = {"icalib": provenance["icalib"], "Python": provenance["python"], **provenance["packages"]}
    machine = ", ".join(f"{name} {value}" for name, value in provenance["machine"].items())
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    generated = f" Generated texts: {provenance['generated']['generator']}." if "generated" in provenance else ""
    return f"With {listed}; machine: {machine}; data digest {provenance['data_digest'][:16]}.{generated}"


def _pools_used(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Pools of each split, after the limit; a dash where neither the pool set nor a limit says."""
    metadata = local_path(config["data"]) / POOLS_FILE
    with reading(metadata):
        totals = read_json(metadata)["num_pools"] if metadata.is_file() else {}
        return tuple(_num_used(totals.get(split), config["limit"].get(split)) for split in SPLITS)


def _num_used(total: int | None, limit: int | None) -> str:
    known = [number for number in (total, limit) if number is not None]
    limited = limit is not None and (total is None or limit < total)
    return (f"{min(known):,}" if known else MISSING) + (" (limit)" if limited else "")
