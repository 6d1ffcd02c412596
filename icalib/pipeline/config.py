"""What determines a run's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field

from icalib.core.component import Settings, Stored, validated_file
from icalib.core.files import FOLDER_NAME
from icalib.data.pools import read_column, read_pool_set
from icalib.data.schema import ANNOTATIONS_FILE
from icalib.data.selection import Fraction, Limit, Selection
from icalib.methods.method import Method


class RunConfig(Settings):
    """Everything that determines a run's numbers, stored in config.yaml."""

    method: str
    data: Stored
    labelled: Fraction
    seed: int
    limit: Limit = Field(default={})
    backbone: str
    experiment: str = Field(pattern=FOLDER_NAME)
    settings: Method
    resample_labels: bool = Field(default=False, exclude_if=lambda resamples: not resamples)
    """Let the seed draw the labelled pools, so that the spread over seeds includes which pools are labelled."""
    metrics: tuple[str, ...] = Field(default=(), exclude_if=lambda metrics: not metrics)
    """Import paths of further metrics to compute, e.g. `my_lab.metrics:mean_rank`."""

    @classmethod
    def recorded(cls, path: Path, config: Mapping[str, Any]) -> Self:
        """Return the settings that a config.yaml at `path` has, or raise a RunFolderError."""
        return validated_file(path, cls, {name: value for name, value in config.items() if name != "version"})

    @property
    def selection(self) -> Selection:
        """The pools that the run uses."""
        return Selection(
            labelled_fraction=self.labelled, limit=self.limit, label_seed=self.seed if self.resample_labels else None
        )

    def num_labelled(self) -> int:
        """Return the number of labelled pools."""
        return len(self._labelled_order())

    def num_unannotated(self) -> int:
        """Return how many labels come from the source alone, of pools of which annotators have labelled others."""
        pool_set = read_pool_set(self.data)
        if ANNOTATIONS_FILE not in pool_set.files or pool_set.default_labelled_fraction is None:
            return 0
        num_annotated = round(pool_set.default_labelled_fraction * pool_set.num_pools["train"])  # first in the order
        return int((self._labelled_order() >= num_annotated).sum())

    def _labelled_order(self) -> npt.NDArray[np.int64]:
        """Return the `label_order` of the labelled pools."""
        order = read_column(self.data, "train", "label_order")
        return order[self.selection.rows("train", "labelled", order)]
