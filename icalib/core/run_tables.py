"""What the tables and summaries of a run folder hold."""

from __future__ import annotations

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

PREDICTION_SCHEMA = pa.schema(
    [
        ("pool_id", pa.string()),
        ("candidate", pa.int32()),
        ("label", pa.int32()),  # 1 right, 0 wrong, −1 unknown
        ("view", pa.string()),  # the view that was chosen: plain or intent
        ("logit", pa.float64()),  # what ranking uses
        ("prob", pa.float64()),  # probability of being right
        ("logit_var", pa.float64()),
        ("prob_var", pa.float64()),
        ("mutual_information", pa.float64()),  # nats
        ("gain", pa.float64()),  # Δ = g(intent) − g(plain), NaN where there is one view only
        ("num_passes", pa.int32()),
    ]
)
"""One row for each pair. Runs that fitted p_none (docs/none-of-these.md) have it as one more column."""
INTENT_SCHEMA = pa.schema([("pool_id", pa.string()), ("utterance", pa.int32()), ("intents", pa.list_(pa.string()))])
PSEUDO_LABEL_SCHEMA = pa.schema(
    [
        ("pool_id", pa.string()),
        ("candidate", pa.int32()),
        ("label", pa.int32()),  # the pseudo label, 0 or 1
        ("gold", pa.int32()),  # 1 right, 0 wrong, −1 unknown; never seen by the method
        ("view", pa.string()),
        ("rule", pa.string()),  # "confident" (Eq. 5) or "calibrated" (Eq. 12)
        ("prob", pa.float64()),
        ("mutual_information", pa.float64()),
        ("gain", pa.float64()),
    ]
)
TRAINING_SCHEMA = pa.schema(
    [
        ("stage", pa.string()),  # domain_pretraining, answer_generator, teacher, member_1_teacher, student …
        ("round", pa.int32()),  # 0 for domain_pretraining and teacher
        ("split", pa.string()),  # train or validation
        ("step", pa.int64()),  # counts on over the stages
        ("epoch", pa.int32()),
        ("tag", pa.string()),  # e.g. loss/total, rank/R@1, cal/ECE, opt/lr
        ("value", pa.float64()),
    ]
)
METRIC_SCHEMA = pa.schema(
    [
        ("split", pa.string()),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("low", pa.float64()),  # interval over pools, 95 %; NaN where there is none
        ("high", pa.float64()),
    ]
)


class RoundSummary(BaseModel):
    """The outcome of one round of pseudo-labelling; accuracies are None where there are no gold labels."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    round: int
    num_pools_scored: int
    num_pools_selected: int
    num_pairs_selected: int
    num_pools_by_rule: dict[str, int]
    share_with_intents: float
    pool_accuracy: float | None  # fraction of selected pools whose pseudo-positive is the right candidate
    pair_accuracy: float | None
    base_accuracy: float | None  # R@1 of the same scores over all pools: the accuracy of selecting every pool
    confusion: dict[str, int]  # pairs: true_positive, false_positive, true_negative, false_negative; or nothing
    gain_histogram_edges: list[float]
    gain_histogram_counts: list[int]
    num_pools_with_intents: int | None = None  # scored pools with any predicted intent; None if none are predicted
    information_reliability: float | None = None  # split-half reliability of g in the plain view; None without passes
    gain_reliability: float | None = None  # split-half reliability of Δ in pools with intents
    thresholds: dict[str, float] = {}  # the rule's thresholds as absolute values
    validation_pools_selected: int | None = None  # by a rule whose thresholds are precisions on them, else None
    validation_accuracy: float | None = None  # fraction of these whose pseudo-positive is the right candidate

    @property
    def num_pairs_with_intents(self) -> int:
        """Number of pairs that are trained on with their predicted intents."""
        return round(self.share_with_intents * self.num_pairs_selected)
