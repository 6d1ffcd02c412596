"""The papers' hyper-parameters as data: every value with its source, shared by the methods that a paper compares.

A source is the place in the paper (`§5.3`, `Eq. 4`), `authors' code` or another code that the paper names, or
`not stated: ours`. A preset whose name begins with `paper-` consists of such values; where a paper and this package
differ, the value also says what the paper has. `icalib show METHOD` prints all of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["published", "authors' code", "ours"]

OURS = "not stated: ours"
CODE = "authors' code"


@dataclass(frozen=True)
class Sourced:
    """A value of a paper's preset.

    Args:
        paper: what the paper or its code has, where that is something else or less than the value.
    """

    value: Any
    source: str
    paper: str = ""

    @property
    def kind(self) -> Kind:
        """What the source is."""
        if "ours" in self.source:
            return "ours"
        return CODE if "code" in self.source else "published"


Preset = Mapping[str, Sourced]


def ours(value: Any, paper: str = "not stated") -> Sourced:
    """Return a value of our own choice."""
    return Sourced(value, OURS if paper == "not stated" else "ours", paper)


def code(value: Any, paper: str = "") -> Sourced:
    """Return a value of the code that the paper's authors released."""
    return Sourced(value, CODE, paper)


def same(path: str, source: str, paper: str = "", **values: Any) -> dict[str, Sourced]:
    """Return values of one source, with a path in front of their names."""
    return {f"{path}.{name}": Sourced(value, source, paper) for name, value in values.items()}


def plain(preset: Mapping[str, Any]) -> dict[str, Any]:
    """Return a preset's values without their sources."""
    return {path: value.value if isinstance(value, Sourced) else value for path, value in preset.items()}


def under(path: str, values: Preset) -> dict[str, Sourced]:
    """Return values with a path in front of their names."""
    return {f"{path}.{name}": value for name, value in values.items()}


def counts(preset: Preset) -> dict[Kind, int]:
    """Return how many values are of each kind of source."""
    kinds = [value.kind for value in preset.values()]
    order: Iterable[Kind] = ("published", CODE, "ours")
    return {kind: kinds.count(kind) for kind in order}


def _cross_encoder_alone(source: str) -> dict[str, Sourced]:
    return dict.fromkeys(("similarity", "intent", "domain_pretraining", "calibration"), Sourced(None, source))


# ICAST (Deng et al. 2023)

_ICAST_OPTIMISER = {
    "learning_rate": Sourced(5e-5, "§5.3"),
    "head_learning_rate": code(None),
    "weight_decay": Sourced(0.01, "§5.3"),
    "batch_size": Sourced(16, "§5.3"),
    "train_negatives": Sourced(None, "§5.1"),
    "max_grad_norm": code(1.0, "clips between two steps of one backward pass; here there is one step"),
    "schedule": code("linear", "over 1000 epochs counted in pairs; here over the updates that are made"),
    "warmup_fraction": code(0.1, "of those 1000 epochs, so that it hardly ends; here of the updates that are made"),
}
"""For teacher, student and the baselines that ICAST's authors implemented."""

_BY_HAND = "up to 1000 epochs, of which a person picks a checkpoint on the development set"
_ICAST_TRAINING = {
    **_ICAST_OPTIMISER,
    "epochs": ours(50, _BY_HAND),
    "patience": ours(5, _BY_HAND),
    "selection_metric": ours("F1", _BY_HAND),
}
"""On the labelled pools."""

_ICAST_ENCODER = {
    **_cross_encoder_alone("§3.2"),
    **same("encoder", "§5.3", backbone="bert-base-uncased", dropout=0.1),
    **same("encoder.budget", "§5.3", max_context_tokens=400, max_candidate_tokens=100),
    "encoder.turn_separators": code(False),
    "decision": ours("threshold", "a threshold of 0.4 to 0.8 set by hand for each setting; here fitted on validation"),
}

_GAIN_RULE = {
    "regime.rule.gain_threshold": Sourced(0.02, "§5.3", "0.0 for MANtIS with 5 and 10 %: an exception of the tables"),
    "regime.rule.scale": Sourced("absolute", "§5.3"),
    "regime.rule.confidence": Sourced("information", "Eq. 10", "one term of the entropy; here both, as in the code"),
    **same("regime.rule.intents", CODE, choice="threshold", threshold=0.5),
}

_PSEUDO_LABEL_RULE = {
    **same("regime.rule", "§5.3", positive_threshold=0.8, negative_threshold=0.1),
    **same("regime.rule", "§5.3", calibrated_positive_threshold=0.5, calibrated_negative_threshold=0.5),
    "regime.rule.confidence_threshold": Sourced(0.2, "§5.3"),
    "regime.rule.same_candidate": code(False),
    "regime.rule.calibrate_confident_pools": code(False, "Eq. 14 also labels them; the code leaves them out"),
}


def _rounds(*, with_intents: bool) -> dict[str, Sourced]:
    restarts = "optimiser and schedule continue from round to round; here each round starts its own"
    return {
        "regime.with_intents": Sourced(with_intents, "§4.1" if with_intents else "§3.3"),
        "regime.num_rounds": code(4, "8 with 10 %: an exception of the tables"),
        "regime.pools_per_round": code(None),
        **under("regime.teacher", _ICAST_TRAINING),
        **under("regime.student", _ICAST_OPTIMISER),
        "regime.student.epochs": Sourced(5, "Alg. 1", restarts),
        "regime.student.patience": code(5),
        "regime.student.selection_metric": ours("F1", "the weights after five epochs; here the best of the five"),
    }


_FIVE_PASSES = {"uncertainty.num_passes": Sourced(5, "§5.3")}

ICAST = _ICAST_ENCODER | _FIVE_PASSES | _GAIN_RULE | _PSEUDO_LABEL_RULE | _rounds(with_intents=True)
ICAST_TEACHER = {
    **_ICAST_ENCODER,
    **_FIVE_PASSES,
    "regime.with_intents": Sourced(True, "§4.1"),
    **_GAIN_RULE,
    **under("regime.training", _ICAST_TRAINING),
}
TSST = {
    **_ICAST_ENCODER,
    **_PSEUDO_LABEL_RULE,
    "regime.rule.confidence_threshold": Sourced(1.0, "§3.3"),  # no answer-label calibration
    **_rounds(with_intents=False),
}
"""ICAST without intents (Eq. 5 and 6)."""
del TSST["regime.rule.same_candidate"]

ICAST_BASELINE = _ICAST_ENCODER | under("regime.training", _ICAST_TRAINING)
"""BERT, as ICAST trains it."""

# GPF-BERT and PG-DRR (Ye et al. 2023)

_PENHA: dict[str, Any] = {"schedule": "constant", "warmup_fraction": 0.0, "max_grad_norm": 0.5}
"""What the code of Penha & Hauff (2021) has."""


def _calibration_study(*, rate: float, negatives: int, epochs: Sourced, section: str) -> dict[str, Sourced]:
    return {
        **_cross_encoder_alone(section),
        "encoder.dropout": Sourced(0.1, section),
        "encoder.budget.max_context_tokens": ours(400),
        "encoder.budget.max_candidate_tokens": ours(100),
        "encoder.turn_separators": ours(False),
        "regime.training.learning_rate": Sourced(rate, section),
        "regime.training.weight_decay": Sourced(0.0, f"{section}: Adam"),
        "regime.training.batch_size": Sourced(16, section),
        "regime.training.epochs": epochs,
        "regime.training.patience": ours(epochs.value),
        "regime.training.selection_metric": ours("F1"),
        "regime.training.train_negatives": Sourced(negatives, section),
        "regime.training.head_learning_rate": Sourced(None, section),
    }


GPF = {
    "encoder.backbone": ours("bert-base-cased", "BERT with 12 layers; cased in PG-DRR, by the same authors"),
    **_calibration_study(rate=5e-6, negatives=9, epochs=Sourced(1, "§3.1"), section="§3.1"),
    **same("regime.training", "code of Penha & Hauff (2021), whose recipe the paper follows", **_PENHA),
}
"""What all rows of GPF-BERT's tables have in common."""

_PG_EPOCHS = Sourced(3, "§4.4", "1 for MANtIS: an exception of the tables")
PG = {
    "encoder.backbone": Sourced("bert-base-cased", "§4.3"),
    **_calibration_study(rate=1e-5, negatives=1, epochs=_PG_EPOCHS, section="§4.4"),
    **same("regime.training", "ours", "not stated; as Penha & Hauff (2021), whose baselines it has", **_PENHA),
}
"""What all rows of PG-DRR's tables have in common."""

RANDOM_FEATURES = {
    "head.features": Sourced("cosine", "Eq. 3"),
    "head.num_features": ours(2048, "not stated; 2048 fits the number of parameters in Table 3"),
    "head.length_scale": ours(None, "W ~ N(0, 1) in Eq. 2, with which all kernels are 0; here √(D/2)"),
    "head.spectral_bound": Sourced(1.0, "§2.1"),
    # MiniLM's matrices have norms of 2.3 to 11.7. With a bound of 1 on all of them, the features of 48 different
    # pairs have a mean cosine of .999 instead of .78: nothing is left to learn from in one epoch at 5e-6.
    "encoder.spectral_norm": ours(None, "§2.1 bounds each layer; the parameters of Table 3 fit one dense layer"),
    "head.dropout": Sourced(0.1, "§3.1"),
    **same("head", "Eq. 4", ridge=1.0, likelihood="logistic", effective_n=None),
    "head.laplace": Sourced("exact", "Eq. 4", "a moving average of batches (Eq. 5), which loses the prior"),
    "uncertainty.integration": Sourced("mean_field", "§2.1"),
    "uncertainty.mean_field_factor": ours(math.pi / 8, "not stated; π/8 in Lu et al. (2020)"),
}
"""The head of SNGP and GPF-BERT, as GPF-BERT describes it."""

FOCAL_LOSS = {"loss.gamma": ours(2.0, "γ ≥ 1 (§2.2), without a value")}
"""That of GPF-BERT."""


def passes_of_dropout(section: str) -> dict[str, Sourced]:
    """Return the passes of MC dropout in both papers."""
    return {"uncertainty.num_passes": Sourced(10, section)}


_SNGP_CODE = "code of Liu et al. (2020)"
SNGP_OF_PG = {
    **RANDOM_FEATURES,
    "head.num_features": ours(2048, "not stated; 2048 fits the number of parameters in Table 2"),
    "head.length_scale": ours(None, "not stated; √(D/2) is close to SNGP's code"),
    "head.spectral_bound": Sourced(0.95, _SNGP_CODE),
    "encoder.spectral_norm": Sourced(None, _SNGP_CODE),
    "head.dropout": Sourced(0.1, "§4.4"),
    **same("head", OURS, "not stated", ridge=1.0, likelihood="logistic", effective_n=None, laplace="exact"),
    "head.features": Sourced("cosine", "§4.3"),
    "uncertainty.integration": Sourced("mean_field", _SNGP_CODE),
    "uncertainty.mean_field_factor": ours(math.pi / 8, "not stated; 0.1 in SNGP's code, π/8 by theory"),
}
"""SNGP's head where PG-DRR compares with it: the paper only names it, so it is SNGP's own (Liu et al.)."""

_SUPPORT = "no word on the pairs that prediction conditions on"
POLYA_GAMMA = {
    "regime.training.head_learning_rate": Sourced(3e-3, "§4.4"),
    **same("head", "§4.4", kernel="rbf", length_scale=1.0, output_scale=8.0),
    **same("head", "§4.4", num_steps=10, prediction_steps=10, num_chains=30),
    **same("head.support", "ours", _SUPPORT, size=256, positive_share=0.5),
    "uncertainty.integration": Sourced("quadrature", "Eq. 15"),
    "uncertainty.num_nodes": ours(32),
}
"""PG-DRR's head, its chains, and its learning rate."""

# Answer selectors that ICAST compares with

IART = {
    **_cross_encoder_alone("§3"),
    "encoder.backbone": ours("bert-base-uncased", "words; here the word pieces of this tokenizer"),
    "encoder.max_turns": code(6),
    "encoder.max_words": code(200, "180 for Ubuntu"),
    **same("encoder", CODE, embedding_size=200, num_blocks=4, num_channels=16),
    "loss.max_loss": code(10.0),
    **same("regime.training", CODE, epochs=5, learning_rate=1e-3, schedule="staircase", warmup_fraction=0.0),
    **same("regime.training", CODE, weight_decay=0.0, batch_size=32, max_grad_value=1.0, max_grad_norm=None),
    "regime.training.max_tokens_per_batch": code(32 * 1408),  # so that 32 of the longest pairs are an update
    "regime.training.patience": code(5),
    "regime.training.selection_metric": ours("F1"),
    "pretraining.word_vectors.window": ours(5),
    "pretraining.intent_classifier.training.epochs": ours(50),
}
"""IART as its authors released it, which is what ICAST ran."""

_WHOLE = "256 tokens, of which the longer of context and answer is cut; here a budget for each"
BERT_FP = {
    **dict.fromkeys(("similarity", "intent", "calibration"), Sourced(None, "§3")),
    "encoder.backbone": code("bert-base-uncased"),
    "encoder.turn_separators": code(True, "a new token; here [SEP]"),
    **same("encoder.budget", "ours", _WHOLE, max_context_tokens=153, max_candidate_tokens=100),
    **same("domain_pretraining", CODE, max_length=240, context_utterances=3, masked_word_weight=1.0),
    "domain_pretraining.training.epochs": code(34, "25 for Ubuntu, up to 34 for the other corpora"),
    "domain_pretraining.training.learning_rate": code(3e-5, "1.5e-5 for Ubuntu"),
    **same(
        "domain_pretraining.training", CODE, batch_size=50, weight_decay=0.01, warmup_fraction=0.01, schedule="plateau"
    ),
    **same("regime.training", CODE, epochs=2, patience=2, learning_rate=1e-5, head_learning_rate=None),
    **same("regime.training", CODE, batch_size=32, train_negatives=1, schedule="constant", warmup_fraction=0.0),
    "regime.training.selection_metric": ours("MAP", "R@1 + R@2 + R@5 on the development set"),
    "regime.training.max_grad_norm": code(5.0, "clips after the step, which does nothing"),
}
"""BERT_FP as its authors released it (Han et al. 2021), which is what ICAST ran."""

_DESCRIBED = "a two-layer matching network on BERT; its inside is not described"
SAM = {
    **ICAST_BASELINE,
    **same("encoder", "ours", _DESCRIBED, turn_separators=True, matching_size=256),
    **same("regime.training", "ours", _DESCRIBED, learning_rate=2e-5, head_learning_rate=1e-3),
}
"""ICAST ran SAM's released code, of which we know the description (Zhang R. et al. 2022)."""

_IN_ONE_SEQUENCE = "all candidates in one sequence; layout and budget are not described"
_OF_POOLS = {
    "regime.training.batch_size": ours(4, "16, of pairs; here pools"),
    "decision": ours("argmax", "P, R and R@1 are nearly equal in ICAST's Table 2"),
}
JM = {
    **ICAST_BASELINE,
    **same("encoder.budget", "ours", _IN_ONE_SEQUENCE, max_context_tokens=192, max_candidate_tokens=30),
    **_OF_POOLS,
}
"""JM (Zhang L. et al. 2021), as ICAST's authors implemented it."""

_TWO_NETWORKS = "the abstract names the tasks and the two networks, not their sizes"
GRN = {
    **ICAST_BASELINE,
    **same("encoder", "ours", _TWO_NETWORKS, turn_separators=True, graph_layers=2),
    "regime.training.train_negatives": ours(3, _TWO_NETWORKS),
    **_OF_POOLS,
}
"""GRN (Liu Y. et al. 2021), as ICAST's authors implemented it."""
del GRN["domain_pretraining"]  # NUP and UOP are its own


def _generated_contrast(task: str) -> dict[str, Sourced]:
    """Return what GRAY (Lin et al. 2020) and BIG (Deng Y. et al. 2021) have in common, as ICAST implemented them."""
    abstract = f"a generation model, fine-tuned; {task}; neither model nor weights are named"
    return {
        **ICAST_BASELINE,
        "regime.generator": Sourced("language-model", "ICAST §5.2"),
        "regime.generator.model": ours("facebook/bart-base", abstract),
        "regime.contrast.weight": ours(1.0, abstract),
    }


_LEVELS = "a ranking loss of several levels; margins and numbers of answers are not described"
GRAY = {
    **_generated_contrast("it writes grey answers"),
    **same("regime.contrast", "ours", _LEVELS, num_grey=2, margin=0.2, wide_margin=0.4),
    "regime.training.train_negatives": ours(1, _LEVELS),
    "calibration": ours("platt", "a hinge is no likelihood, so a map precedes the threshold"),
}
BIG = _generated_contrast("it writes questions and answers in both directions")
