"""Choice of an utterance's intents from their predicted probabilities."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from icalib.core.component import Settings


class IntentChoice(Settings):
    """How the intents of an utterance are chosen from their predicted probabilities."""

    choice: Literal["threshold", "argmax", "top_k"] = "threshold"
    """`threshold`: those above `threshold`, as in the authors' code; there may be none, and a pool without any is
    scored in the plain view only. `argmax`: the most probable one. `top_k`: the `top_k` most probable ones."""
    threshold: float = Field(default=0.5, gt=0, lt=1)
    """Probability above which `threshold` chooses an intent."""
    top_k: int = Field(default=2, ge=1)
    """Number of intents that `top_k` chooses."""

    def chosen(self, probs_K: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Return the chosen intents in ascending order."""
        if self.choice == "threshold":
            return np.flatnonzero(probs_K > self.threshold)
        number = 1 if self.choice == "argmax" else self.top_k
        return np.sort(np.argsort(-probs_K, kind="stable")[:number])


AUTHORS_CHOICE = IntentChoice()
"""Intents above 0.5, as in the authors' code."""
