"""One pool through a run: what each model read in it, and why its pseudo label is what it is."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from icalib.core.contents import read_record
from icalib.core.errors import RunFolderError, SettingError
from icalib.core.files import reading
from icalib.core.parquet import read_parquet
from icalib.core.run_folder import RunFolder
from icalib.core.storage import local_path, pull
from icalib.data.pools import as_pools, iter_pools, read_column, read_pool_set, read_rows
from icalib.data.schema import SPLITS, Pool, Split
from icalib.metrics.pairs import ranked_rows
from icalib.parts.sum import SumOfParts, column_files
from icalib.pipeline.config import RunConfig
from icalib.pipeline.evaluation import Fitted
from icalib.pipeline.run import CACHE
from icalib.regimes.pseudo_labels import SYMBOLS, PseudoLabelRule, PseudoLabels, assign, scores_for_rule
from icalib.scoring.column import View, in_view, read_columns
from icalib.scoring.gain import ALWAYS_INTENTS, NEVER_INTENTS, ChosenScores, choose_views
from icalib.scoring.scores import Shards


@dataclass(frozen=True)
class CandidateReading:
    """What a model makes of one candidate.

    Args:
        shares: w_k times the mean of part k, in the view that was chosen; with b they sum to the mean logit.
        prob: p̄, as the rule compares it with thresholds; at test the run's probability.
        information, gain: g in nats, and Δ (NaN with one view only).
        pseudo_label: 1, 0, or None: not trained on.
    """

    index: int
    text: str
    gold: int
    shares: Mapping[str, float]
    logit: float
    prob: float
    information: float
    gain: float
    view: str
    pseudo_label: int | None = None


@dataclass(frozen=True)
class Reading:
    """What one model makes of the pool: of which round or member, candidates by falling logit, intents by utterance.

    `rule` says which rule selected the pool for training; `thresholds` what it was compared with.
    """

    title: str
    intents: tuple[tuple[str, ...], ...]
    offset: float
    candidates: tuple[CandidateReading, ...]
    rule: str = ""
    thresholds: str = ""


@dataclass(frozen=True)
class Why:
    """A pool, and its readings in the order of the run; `note` says why there is none."""

    pool: Pool
    split: Split
    readings: tuple[Reading, ...]
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return everything as one JSON-able object; null where there is no Δ."""
        readings = [asdict(reading) for reading in self.readings]
        for one in (one for read in readings for one in read["candidates"]):
            one["gain"] = _or_none(one["gain"])
        pool = self.pool.model_dump(mode="json")
        return {"pool": pool, "split": self.split, "readings": readings, "note": self.note}


def why(folder: Path, pool_id: str) -> Why:
    """Follow a pool through a finished run.

    A SettingError says that there is no such pool, a RunFolderError that the run's stages were removed.
    """
    run = RunFolder.open(folder)
    config = RunConfig.recorded(run.path / "config.yaml", run.config)
    run.check_trained_on(config.data, read_pool_set(config.data).digest)
    found = _find(config.data, pool_id)
    if found is None:
        raise SettingError(
            f"no pool of {config.data} has the id {pool_id}. Predictions, pseudo labels and the report's cases name "
            "pools by their `pool_id`."
        )
    split, row, pool = found
    trail = _Trail(run, config, pool, split)
    readings = tuple(trail.rounds() if split == "train" else trail.final())
    return Why(pool, split, readings, "" if readings else _absence(config, split, row))


@dataclass(frozen=True)
class Mistake:
    """A pool whose best candidate is wrong: pseudo-labelled right in a round, or ranked first at test.

    `gain` is None where only one view was read.
    """

    pool_id: str
    stage: str
    prob: float
    information: float
    gain: float | None


def mistakes(folder: Path, number: int = 10) -> list[Mistake]:
    """Return the most confident wrong pseudo labels of each round, and the most confident wrong test answers."""
    run = RunFolder.open(folder)
    labels = {path.name: read_parquet(path / "pseudo_labels.parquet") for path in run.round_folders}
    tables = {
        f"round {name}": table.filter((pc.field("label") == 1) & (pc.field("gold") == 0))
        for name, table in labels.items()
    }
    predicted = run.predictions("test")
    order, starts = ranked_rows(predicted)
    tables["test"] = predicted.take(order[starts]).filter(pc.field("label") == 0)
    return [
        Mistake(row["pool_id"], stage, row["prob"], row["mutual_information"], _or_none(row["gain"]))
        for stage, table in tables.items()
        for row in table.sort_by([("prob", "descending")]).slice(0, number).to_pylist()
    ]


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _find(data: Path, pool_id: str) -> tuple[Split, int, Pool] | None:
    for split in reversed(SPLITS):
        ids = [one for batch in iter_pools(data, split, ["pool_id"]) for one in batch["pool_id"].to_pylist()]
        rows = np.flatnonzero(np.array(ids) == pool_id)
        if len(rows):
            return split, int(rows[0]), next(as_pools(read_rows(data, split, rows)))
    return None


def _absence(config: RunConfig, split: Split, row: int) -> str:
    order = read_column(config.data, split, "label_order")
    if row not in config.selection.rows(split, "all", order):
        return "the run's --limit leaves this pool out"
    if split == "train" and row in config.selection.rows(split, "labelled", order):
        return "this pool is labelled: its gold label is trained on"
    return "no round of this run drew this pool" if split == "train" else "this pool has no scores"


def _thresholds(configured: PseudoLabelRule, rule: PseudoLabelRule) -> str:
    """Return the thresholds that the pool was compared with, and what the settings say that they are."""
    texts: list[str] = []
    for name, short in SYMBOLS.items():
        given, value = getattr(configured, name), getattr(rule, name)
        scale = "quantile" if name in ("gain_threshold", "confidence_threshold") else configured.scale
        is_derived = configured.scale != "absolute" and value != given
        texts.append(f"{short} {value:.3g}" + (f" ({scale} {given:g})" if is_derived else ""))
    of_pool = "p̄: softmax over the pool" if rule.over_pool else "p̄: of each pair by itself"
    views = {ALWAYS_INTENTS: " Intents always.", NEVER_INTENTS: " Intents never."}.get(rule.gain_threshold, "")
    high = "g < λʰ" if rule.confidence == "certainty" else "g > λʰ"
    return f"{of_pool}.{views} Confident: one p̄ > λ⁺; calibrated: one p̄ > λ̃⁺ and one {high}. {', '.join(texts)}"


class _Trail:
    """The stages of a run that read one pool."""

    def __init__(self, run: RunFolder, config: RunConfig, pool: Pool, split: Split) -> None:
        self._run, self._config, self._pool, self._split = run, config, pool, split
        self._names = read_pool_set(config.data).intents
        self._paths = {stage["digest"]: Path(stage["path"]) for stage in run.stages}

    def rounds(self) -> Iterator[Reading]:
        """Yield what each round's teacher read, and the pseudo labels that followed."""
        configured = getattr(self._config.settings.regime, "rule", None)
        for summary in self._run.round_summaries():
            assert isinstance(configured, PseudoLabelRule)
            rule = configured.resolved(summary.thresholds)
            for path in self._scores(f"round-{summary.round}/scores"):
                for index, shard in self._shards(path):
                    chosen = scores_for_rule(*shard, rule)
                    labels = assign(chosen, rule)
                    title = f"round {summary.round}, by {'the teacher' if summary.round == 1 else 'the student before'}"
                    yield self._reading(title, path, index, (chosen, labels), shard[1], _thresholds(configured, rule))

    def final(self) -> Iterator[Reading]:
        """Yield what each member of the final model read."""
        fitted = Fitted.load(self._run.fitted_path)
        predicted = self._run.predictions(self._split).filter(pc.field("pool_id") == self._pool.pool_id)
        final = dict(zip(predicted["candidate"].to_pylist(), predicted["prob"].to_pylist(), strict=True))
        paths = list(self._scores(f"{self._split}/scores"))
        for member, path in enumerate(paths, 1):
            for index, shard in self._shards(path):
                chosen = choose_views(*shard, fitted.rule)
                if fitted.predicts_scores:  # on a scale of their own; the run's logits are those of its probabilities
                    logits = dict(zip(predicted["candidate"].to_pylist(), predicted["logit"].to_pylist(), strict=True))
                    chosen = replace(chosen, logit=np.array([logits[one] for one in chosen.candidate.tolist()]))
                if len(paths) == 1:  # several have one mean probability
                    yield self._reading("the final model", path, index, (chosen, None), shard[1], probs=final)
                else:
                    yield self._reading(f"member {member}", path, index, (chosen, None), shard[1])

    def _scores(self, name: str) -> Iterator[Path]:
        """Yield the stages of this name, of all members."""
        for stage in self._run.stages:
            if re.fullmatch(rf"{re.escape(name)}(-\d+)?", stage["name"]):
                yield self._present(stage["path"])

    def _shards(self, path: Path) -> Iterator[tuple[int, tuple[pa.Table, pa.Table | None]]]:
        """Yield the number and the pool's rows of the shard that has it, if one has."""
        of_pool = pc.field("pool_id") == self._pool.pool_id
        for index, (scores, intents) in enumerate(Shards(path)):
            found = scores.filter(of_pool)
            if found.num_rows:
                yield index, (found, None if intents is None else intents.filter(of_pool))
                return

    def _reading(
        self,
        title: str,
        path: Path,
        index: int,
        found: tuple[ChosenScores, PseudoLabels | None],
        intents: pa.Table | None,
        thresholds: str = "",
        probs: Mapping[int, float] | None = None,
    ) -> Reading:
        """Return what a model made of the pool; `probs` are the run's, by candidate, None: p̄."""
        chosen, labels = found
        offset, shares = self._shares(path, index, chosen.view.tolist())
        candidates = [
            CandidateReading(
                index=number,
                text=self._pool.candidates[number],
                gold=int(chosen.gold[at]),
                shares={part: float(values[at]) for part, values in shares.items()},
                logit=float(chosen.logit[at]),
                prob=float(chosen.prob[at]) if probs is None else probs[number],
                information=float(chosen.information[at]),
                gain=float(chosen.gain[at]),
                view=str(chosen.view[at]),
                pseudo_label=int(labels.label[at]) if labels is not None and labels.keep[at] else None,
            )
            for at, number in enumerate(chosen.candidate.tolist())
        ]
        order = np.argsort(-chosen.ranking, kind="stable")
        named = [tuple(self._names[one] for one in ids) for ids in (intents["intents"][0].as_py() if intents else [])]
        rule = "" if labels is None else str(labels.reason[0]) or "not selected"
        return Reading(title, tuple(named), offset, tuple(candidates[at] for at in order), rule, thresholds)

    def _shares(self, path: Path, index: int, views: Sequence[View]) -> tuple[float, dict[str, Any]]:
        """Return b, and w_k times the mean of each part's column in the views of the pool's candidates, [C]."""
        with reading(path / "stage.json"):
            job = read_record(path / "stage.json")["identity"]
        columns = job.get("columns", {})
        fit = job.get("fit")
        fitted = SumOfParts.fitted(None if fit is None else self._path(fit), columns or ("cross",))
        shares: dict[str, Any] = {}
        for part, artifact in columns.items():
            if not (weight := fitted.weight(part)):
                continue
            table = read_parquet(column_files(self._path(artifact))[index])
            found = read_columns(table.filter(pc.field("pool_id") == self._pool.pool_id))
            means = {view: weight * in_view(found, view, len(views)).mean_SN.mean(0) for view in set(views)}
            shares[part] = np.array([means[view][at] for at, view in enumerate(views)])
        return fitted.offset, shares

    def _path(self, artifact: Mapping[str, str]) -> Path:
        digest, _, file = artifact["digest"].partition("/")
        return self._present(self._paths[digest]) / file

    def _present(self, stage: str | Path) -> Path:
        """Return a stage's folder on this machine."""
        path = local_path(stage)
        pull(path)
        if not path.is_dir():  # the folder of runs may have been moved, with its cache
            above = (folder / CACHE / path.name for folder in self._run.path.resolve().parents)
            path = next((folder for folder in above if folder.is_dir()), path)
        if not path.is_dir():
            raise RunFolderError(
                f"{path} is gone, which has scores of this run: the stage cache was removed since. "
                f"`icalib run {self._run.path}/config.yaml --fresh` computes them again."
            )
        return path
