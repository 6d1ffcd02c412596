"""Which pools a run uses: labelled and unlabelled training pools, and how many of each split."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from icalib.core.component import Settings
from icalib.core.errors import SettingError
from icalib.data.schema import Split

Rows = npt.NDArray[np.int64]
Part = Literal["labelled", "unlabelled", "all"]
Fraction = Annotated[float, Field(gt=0, le=1)]
Limit = dict[Split, Annotated[int, Field(ge=1)]]


class Selection(Settings):
    """The pools of a data set that a run uses; recorded in its config."""

    labelled_fraction: Fraction
    """Share of the training pools whose right candidate the method may see."""
    limit: Limit = Field(default={})
    """At most so many pools of a split; the labelled fraction is then one of the limited training pools."""

    def for_training(self, labelled_fraction: float | None = None) -> Selection:
        """The same training pools (None: the same labelled ones), for stages on which other splits have no bearing."""
        return Selection(
            labelled_fraction=labelled_fraction or self.labelled_fraction,
            limit={split: size for split, size in self.limit.items() if split == "train"},
        )

    def rows(self, split: Split, part: Part, label_order: npt.NDArray[np.int64]) -> Rows:
        """Rows of a split's pools, ascending.

        Args:
            label_order: the split's column; −1 marks pools that never become labelled.

        Raises:
            SettingError: no pool is left.
        """
        size = min(len(label_order), self.limit.get(split, len(label_order)))
        if split == "train":
            order = np.where(label_order < 0, len(label_order) + np.arange(len(label_order)), label_order)
            ranked = np.argsort(order, kind="stable")[:size]
            wanted = math.ceil(round(self.labelled_fraction * size, 6))  # 0.07 · 100 is a little more than 7
            num_labelled = min(wanted, int((label_order[ranked] >= 0).sum()))
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
