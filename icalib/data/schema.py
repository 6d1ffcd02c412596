"""Dialogues and pools: what a record must look like, and pools as Parquet.

Vocabulary: a *context* is the last utterances before a response; a *pool* is one context with its C candidates,
one of them right, several, or none; a *pair* is (context, candidate).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from typing_extensions import override

from icalib.core.files import content_digest

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
OptionalText = Annotated[str, StringConstraints(min_length=0)]
"""Any text; the constraint makes pydantic refuse lone surrogates, which no file can hold."""
Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")

UNKNOWN_LABEL = -1
"""Label of a pool whose right candidate is unknown."""
NONE_RIGHT = -2
"""Label of an unanswerable pool: all its candidates are known to be wrong."""


def right_indices(label: int, also_right: Sequence[int]) -> tuple[int, ...]:
    """Return the indices of a pool's right candidates; empty where none is right or it is unknown."""
    return (label, *also_right) if label >= 0 else ()


def candidate_labels(label: int, also_right: Sequence[int], size: int) -> npt.NDArray[np.int64]:
    """Return 1 for right candidates, 0 for wrong ones, −1 for all where it is unknown, [size]."""
    if label == UNKNOWN_LABEL:
        return np.full(size, UNKNOWN_LABEL)
    labels = np.zeros(size, np.int64)
    labels[list(right_indices(label, also_right))] = 1
    return labels


class Utterance(BaseModel):
    """One turn of a dialogue; `intents` is empty where it is not annotated."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    speaker: Literal["user", "agent"]
    text: Text
    intents: tuple[Text, ...] = ()
    is_answer: bool | None = Field(default=None, exclude=True, repr=False)
    """Whether the source marks it as an accepted answer; None: the source doesn't say. Not kept in pools."""


class Dialogue(BaseModel):
    """One dialogue; `split` is None where the source has no split of its own."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    dialog_id: Text
    source: OptionalText = ""
    domain: OptionalText = ""
    split: Split | None = None
    utterances: tuple[Utterance, ...] = Field(min_length=1)


class AnsweredContext(BaseModel):
    """One context with its right answers; it becomes one pool an answer, none of which has another one as wrong."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    dialog_id: Text
    query_id: OptionalText = ""
    """What its pools are called after, where a dialogue has several queries; empty: the dialogue's id."""
    domain: OptionalText = ""
    split: Split | None = None
    context: tuple[Utterance, ...] = Field(min_length=1)
    answers: tuple[Text, ...] = Field(min_length=1)


class Pool(BaseModel):
    """One context and its C candidates; `split` is None where the source has none.

    `label` is the index of the right candidate, −1 where it is unknown and −2 where no candidate is right. Where
    several candidates are right, it is the index of the first one in the source, and `also_right` has those of the
    others, ascending.
    `label_order` ranks training pools in the order in which they become labelled (0 first; −1 outside the training
    split and where the label is unknown): the labelled fraction f takes the first ceil(f · number of training pools),
    so smaller fractions are contained in larger ones. A number is left out between pools that come first because they
    have intents and the others.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    pool_id: Text
    dialog_id: Text
    domain: OptionalText = ""
    split: Split | None = None
    context: tuple[Utterance, ...] = Field(min_length=1)
    candidates: tuple[Text, ...] = Field(min_length=2)
    label: int = Field(ge=NONE_RIGHT)
    label_order: int = Field(default=-1, ge=-1)
    also_right: tuple[int, ...] = ()

    @model_validator(mode="after")
    def _check_also_right(self) -> Self:
        if not self.also_right:
            return self
        if len({*self.right}) < len(self.right) or min(self.right) < 0 or max(self.right) >= len(self.candidates):
            raise ValueError(
                f"found label {self.label} and also_right {list(self.also_right)} with {len(self.candidates)} "
                "candidates; expected different indices of candidates"
            )
        return self

    @property
    def right(self) -> tuple[int, ...]:
        """Indices of the right candidates, that of `label` first; empty where none is right or it is unknown."""
        return right_indices(self.label, self.also_right)


_UTTERANCE = pa.struct(
    [pa.field("speaker", pa.string()), pa.field("text", pa.string()), pa.field("intents", pa.list_(pa.string()))]
)
POOL_SCHEMA = pa.schema(
    [
        pa.field(name, kind, nullable=False)
        for name, kind in (
            ("pool_id", pa.string()),
            ("dialog_id", pa.string()),
            ("domain", pa.string()),
            ("split", pa.string()),
            ("context", pa.list_(_UTTERANCE)),
            ("candidates", pa.list_(pa.string())),
            ("label", pa.int32()),
            ("label_order", pa.int32()),
            ("also_right", pa.list_(pa.int32())),
        )
    ]
)
"""One row for each pool, one file for each split: `train.parquet`, `validation.parquet`, `test.parquet`."""

POOLS_VERSION = 1
POOLS_FILE = "pools.json"
ANNOTATIONS_FILE = "annotations.parquet"  # who said what, beside pools that annotators labelled
"""Metadata beside the three Parquet files, written last: a folder without it is not a pool set."""


class SoftLabelSource(BaseModel):
    """Who gave soft labels (`llm:NAME`), and of how many pools.

    Of `num_checked` labelled pools in which it named a candidate, people's labels say that it was right in `num_right`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    annotator: str
    num_pools: int
    num_checked: int
    num_right: int

    @property
    def precision(self) -> float:
        """Mean of the posterior of the probability that a soft label is right, from Jeffreys' prior: below 1."""
        return (self.num_right + 0.5) / (self.num_checked + 1)

    @override
    def __str__(self) -> str:
        return f"{self.annotator}: right in {self.num_right} of {self.num_checked} labelled pools"


class PoolSet(BaseModel):
    """Metadata of a prepared folder (`pools.json`); `digest`, of the Parquet files' content, identifies the data."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int
    name: str
    digest: str
    source: str
    source_digest: str
    reader: str
    """Name or import path of the reader."""
    negative_sampler: str
    """Name or import path of the sampler; `source` where the candidates are the source's own."""
    num_candidates: int
    context_turns: int
    protocol: str | None = None
    """Name of the paper's protocol that `prepare` was asked for, if any."""
    answers: str
    """`accepted`: every right candidate is an accepted answer; `all`: any response."""
    intents_in: tuple[Split, ...]
    """Splits in which contexts have intents."""
    split_origin: str
    """`source`: the source's own splits; `drawn`: 80/10/10 by dialogue; `mixed`: some of each."""
    limit: int | None = None
    """Maximum number of pools of a split that `prepare` was asked for."""
    seed: int
    default_labelled_fraction: float | None
    intents: tuple[str, ...]
    num_pools: dict[str, int]
    num_unanswerable: dict[str, int] = {}
    """Pools of each split without a right candidate; empty where there are none."""
    num_several_right: dict[str, int] = {}
    """Pools of each split with several right candidates; empty where there are none."""
    mean_right: dict[str, float] = {}
    """Mean number of right candidates of the pools that have any, of each split in which some have several."""
    num_dialogues: dict[str, int]
    num_rejected: int
    num_logs: int = 0
    """Dialogues in `logs.parquet`, outside the pools."""
    logs_digest: str = ""
    """Digest of the logs' content; empty without logs."""
    soft_labels: tuple[SoftLabelSource, ...] = ()
    """Whose soft labels `soft_labels.parquet` has; their pools count as unlabelled in all other fields."""
    created_with: str
    files: dict[str, dict[str, Any]]
    """Size and digest of each file beside this one."""
    checksum: str = ""
    """Digest of all the other fields."""

    def sealed(self) -> PoolSet:
        """Return the metadata with its checksum."""
        return self.model_copy(update={"checksum": checksum(self.model_dump(mode="json"))})


def checksum(metadata: Mapping[str, Any]) -> str:
    """Return the digest of all fields in `pools.json` but the checksum."""
    return content_digest({name: value for name, value in metadata.items() if name != "checksum"})
