"""What a server asks a finished run: its models for scores, and what /info says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from icalib.core.version import __version__
from icalib.data.questions import unlabelled_pool
from icalib.data.schema import Pool, Utterance
from icalib.parts.loaded import LoadedMembers
from icalib.pipeline.finished import FinishedRun, unlabelled_predictions

_POOL_ID = "000000000"  # id of every pool that is served, which `predict` gives to its first question
_JOINT_QUESTIONS = 16


def question_pool(run: FinishedRun, context: Sequence[Utterance], candidates: Sequence[str]) -> Pool:
    """Return the pool of a question."""
    return unlabelled_pool(_POOL_ID, context[-run.context_turns :], candidates)


def run_info(run: FinishedRun) -> dict[str, Any]:
    """Return what /info says about a run."""
    return {
        "model_id": run.folder.name,
        "model_type": {"reranker": {"id2label": {"0": "right"}, "label2id": {"right": 0}}},
        "version": __version__,
        "method": run.config.method,
        "labelled": run.config.labelled,
        "seed": run.config.seed,
        "decision_threshold": run.fitted.decision_threshold,
        "context_turns": run.context_turns,
        "candidates_in_validation": run.guarantees.validation_sizes.tolist(),
    }


@dataclass(frozen=True)
class QuestionScorer:
    """A run's models, and how the questions of a batch are scored.

    A question's numbers are those of `icalib predict` with it alone. `joint` scores a batch in common passes, which is
    faster on GPUs and changes numbers by rounding; methods that draw dropout masks never do.
    """

    run: FinishedRun
    members: LoadedMembers
    joint: bool

    @classmethod
    def load(cls, path: Path) -> Self:
        """Load a finished run (see `LoadedRanker.load`); on a GPU, batches are scored jointly."""
        run = FinishedRun.open(path)
        members = run.load_members()
        return cls(run, members, members.device.type == "cuda")

    @property
    def max_batch(self) -> int:
        """Number of questions that are scored together."""
        return _JOINT_QUESTIONS if self._is_joint else 1

    def score(self, pools: Sequence[Pool]) -> list[pa.Table]:
        """Return the predictions of each pool, in the order of its candidates."""
        if not self._is_joint:
            return [unlabelled_predictions(self.run, self.members, [pool]) for pool in pools]
        named = [pool.model_copy(update={"pool_id": f"{index:09d}"}) for index, pool in enumerate(pools)]
        table = unlabelled_predictions(self.run, self.members, named)
        offsets = np.cumsum([0, *(len(pool.candidates) for pool in pools)])
        return [table.slice(start, stop - start) for start, stop in pairwise(offsets)]

    def warm_up(self) -> None:
        """Score one small pool, so that the first request does not wait for what models load on their first pass."""
        self.score([unlabelled_pool(_POOL_ID, [Utterance(speaker="user", text="Hello")], ["Hello", "Good bye"])])

    @property
    def _is_joint(self) -> bool:
        return self.joint and not any(estimator.needs == "dropout" for _, estimator in self.run.members)


class Batcher:
    """Scores pools of concurrent callers in a thread; those that arrive meanwhile form the next batch.

    Ray's `serve.batch` closes its batches before the thread is free, and reached half of this throughput at most.
    """

    def __init__(self, score: Callable[[Sequence[Pool]], Sequence[pa.Table]], max_size: int) -> None:
        self._score, self._max_size = score, max_size
        self._waiting: list[tuple[Pool, asyncio.Future[pa.Table]]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, pool: Pool) -> pa.Table:
        """Return the predictions of a pool, or raise what `score` raised for its batch."""
        future: asyncio.Future[pa.Table] = asyncio.get_running_loop().create_future()
        self._waiting.append((pool, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        while waiting := [(pool, future) for pool, future in self._waiting if not future.done()]:  # callers may go
            batch, self._waiting = waiting[: self._max_size], waiting[self._max_size :]
            try:
                tables = await asyncio.to_thread(self._score, [pool for pool, _ in batch])
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
            else:
                for (_, future), table in zip(batch, tables, strict=True):
                    if not future.done():
                        future.set_result(table)
