"""Folds of the labelled pools, so that a model can be seen as it is on pools that it was not trained on."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from icalib.core.component import Settings
from icalib.data.encoding import TokenStore
from icalib.data.selection import Rows


class Fold(Settings):
    """One of K folds of some pools; a dialogue's pools are in the same one."""

    index: int = Field(ge=0)
    number: int = Field(ge=2)

    def rows(self, store: TokenStore, rows: Rows) -> Rows:
        """Return the rows of the fold."""
        return rows[fold_of(store, rows, self.number) == self.index]

    def others(self, store: TokenStore, rows: Rows) -> Rows:
        """Return the rows of the other folds."""
        return rows[fold_of(store, rows, self.number) != self.index]


def fold_of(store: TokenStore, rows: Rows, number: int) -> Rows:
    """Return the fold of each row: dialogues are dealt out in their order."""
    dialogues = store.column("dialog_id")[rows]
    _, first, which = np.unique(dialogues.astype(str), return_index=True, return_inverse=True)
    order = np.empty(len(first), np.int64)
    order[np.argsort(first)] = np.arange(len(first))
    return order[which] % number
