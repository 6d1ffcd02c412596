"""Which pools a run uses: labelled and unlabelled training pools, and how many of each split."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from icalib.core.component import Settings
from icalib.core.errors import SettingError
from icalib.core.seeding import child_seed
from icalib.data.schema import Split

Rows = npt.NDArray[np.int64]
Subset = Literal["labelled", "unlabelled", "all"]
Fraction = Annotated[float, Field(gt=0, le=1)]
Limit = dict[Split, Annotated[int, Field(ge=1)]]


class Selection(Settings):
    """The pools of a pool set that a run uses; recorded in its config."""

    labelled_fraction: Fraction
    """Fraction of the training pools whose right candidate the method may see."""
    limit: Limit = Field(default={})
    """Maximum number of pools of a split; the labelled fraction is then one of the limited training pools."""
    label_seed: int | None = None
    """Seed that draws the labelled pools among those whose label is known: block by block of a `label_order` with gaps,
    which has annotated ones first, then those with intents. None takes the order of `prepare`, which is the same in all
    runs. Smaller fractions are contained in larger ones with either."""
    labelled_first: tuple[int, ...] = Field(default=(), exclude_if=lambda rows: not rows)
    """Rows of training pools with known labels that become labelled before all others; those that the limit would leave
    out take the places of the last ones within it."""

    def for_training(self, labelled_fraction: float | None = None) -> Selection:
        """Return the selection of training pools alone, for stages that don't depend on other splits."""
        return Selection(
            labelled_fraction=labelled_fraction or self.labelled_fraction,
            limit={split: size for split, size in self.limit.items() if split == "train"},
            label_seed=None if labelled_fraction == 1 else self.label_seed,
            labelled_first=() if labelled_fraction == 1 else self.labelled_first,
        )

    def rows(self, split: Split, part: Subset, label_order: npt.NDArray[np.int64]) -> Rows:
        """Return the rows of a split's pools, or of a part of the training pools, ascending; SettingError if none.

        `label_order` is the split's column; −1 marks pools that never become labelled.
        """
        size = min(len(label_order), self.limit.get(split, len(label_order)))
        if split == "train":
            behind = label_order.max(initial=0) + 1
            order = np.where(label_order < 0, behind + np.arange(len(label_order)), label_order)
            ranked = np.argsort(order, kind="stable")[:size]
            num_known = int((label_order[ranked] >= 0).sum())
            wanted = math.ceil(round(self.labelled_fraction * size, 6))  # 0.07 · 100 is a little more than 7
            num_labelled = min(wanted, num_known)
            if self.label_seed is not None:
                rng = np.random.default_rng(child_seed(self.label_seed, "labelled pools"))
                known, unknown = np.split(ranked, [num_known])
                blocks = np.split(known, np.flatnonzero(np.diff(label_order[known]) > 1) + 1)
                ranked = np.concatenate([*map(rng.permutation, blocks), unknown])
            if self.labelled_first:
                first = np.array(self.labelled_first, np.int64)
                ranked = np.concatenate([first, ranked[~np.isin(ranked, first)]])[:size]
            rows = {"labelled": ranked[:num_labelled], "unlabelled": ranked[num_labelled:], "all": ranked}[part]
        else:
            # The same pools in every run, whatever its seed; spread over the file, not its start.
            rows = np.random.default_rng(0).permutation(len(label_order))[:size]
        if part != "unlabelled" and not len(rows):
            raise SettingError(
                f"no {part if split == 'train' else split} pools: the {split} split has {len(label_order)} pools"
                + (f" and the limit is {self.limit[split]}" if split in self.limit else "")
                + ". Prepare data with such pools, or raise --limit or --labelled."
            )
        return np.sort(rows)
