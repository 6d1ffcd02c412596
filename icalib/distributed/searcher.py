"""Ray Tune asks the study of a sweep for its trials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray.tune.search import Searcher

from icalib.core.errors import SettingError
from icalib.sweeps.proposals import Proposal
from icalib.sweeps.study import SweepStudy


class StudySearcher(Searcher):
    """Hands out a study's proposals and tells it what became of them.

    Ray's OptunaSearch knows its trials only in memory and in a pickle of every ten seconds, so a killed sweep would
    repeat some and lose others. Here nothing but Optuna's journal is asked: what is told is told, and what runs when
    the driver dies, or failed in an earlier call, is the first to be handed out again, under the same number.

    Args:
        study: proposes.
        as_config: what a trial's process gets.
        on_begin: called with each proposal.
        on_end: called with each trial's number after the study was told.
    """

    def __init__(
        self,
        study: SweepStudy,
        as_config: Callable[[Proposal], dict[str, Any]],
        on_begin: Callable[[Proposal], None],
        on_end: Callable[[int], None],
    ) -> None:
        super().__init__()
        self._study, self._as_config, self._on_begin, self._on_end = study, as_config, on_begin, on_end
        self._numbers: dict[str, int] = {}
        self.refusal: SettingError | None = None

    def suggest(self, trial_id: str) -> Any:
        """The next trial. What the space gets wrong ends the sweep, once the trials under way are over."""
        try:
            proposal = self._study.next()
        except SettingError as error:
            self.refusal = error
            proposal = None
        if proposal is None:
            return self.FINISHED
        self._numbers[trial_id] = proposal.number
        self._on_begin(proposal)
        return self._as_config(proposal)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Tell the study."""
        number = self._numbers.pop(trial_id)
        if error or result is None:
            self._study.tell_failed(
                number, "the trial's process died; if memory ran out, lower --concurrent or `max_tokens_per_batch`"
            )
        elif result["state"] == "complete":
            self._study.tell_complete(number, result["values"])
        elif result["state"] == "pruned":
            self._study.tell_pruned(number)
        else:
            self._study.tell_failed(number, result["error"])
        self._on_end(number)

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles what it is given, and nobody reads that."""
        return {}

    def save(self, checkpoint_path: str) -> None:
        """The journal is all there is to save."""

    def restore(self, checkpoint_path: str) -> None:
        """And all there is to restore."""
