"""The papers' hyper-parameters as data: every value with its source, shared by the methods that a paper compares.

A source is the place in the paper (`§5.3`, `Eq. 4`), `authors' code` or another code that the paper names, or
`not stated: ours`. A preset whose name begins with `paper-` consists of such values; where a paper and this package
differ, the value also says what the paper has. docs/papers.md lists those.
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
    return {
        "similarity": Sourced(None, source),
        "intent": Sourced(None, source),
        "post_training": Sourced(None, source),
        "calibration": Sourced(None, source),
    }


# ICAST (Deng et al. 2023)

_PENHA = "code of Penha & Hauff (2021), whose recipe the paper follows"


def icast_optimiser(rate: float = 5e-5) -> dict[str, Sourced]:
    """Return ICAST's optimiser, for teacher, student and the baselines that its authors implemented."""
    return {
        "learning_rate": Sourced(rate, "§5.3"),
        "head_learning_rate": code(None),
        "weight_decay": Sourced(0.01, "§5.3"),
        "batch_size": Sourced(16, "§5.3"),
        "train_negatives": Sourced(None, "§5.1"),
        "max_grad_norm": code(1.0, "clips between two steps of one backward pass; here there is one step"),
        "schedule": code("linear", "over 1000 epochs counted in pairs; here over the updates that are made"),
        "warmup_fraction": code(0.1, "of those 1000 epochs, so that it hardly ends; here of the updates that are made"),
    }


def icast_training() -> dict[str, Sourced]:
    """Return the training of ICAST's teacher and of its baselines, on the labelled pools."""
    by_hand = "up to 1000 epochs, of which a person picks a checkpoint on the development set"
    return {
        **icast_optimiser(),
        "epochs": ours(50, by_hand),
        "patience": ours(5, by_hand),
        "selection_metric": ours("F1", by_hand),
    }


def icast_encoder() -> dict[str, Sourced]:
    """Return ICAST's backbone and its input."""
    return {
        **_cross_encoder_alone("§3.2"),
        "encoder.backbone": Sourced("bert-base-uncased", "§5.3"),
        "encoder.dropout": Sourced(0.1, "§5.3"),
        "encoder.budget.max_context_tokens": Sourced(400, "§5.3"),
        "encoder.budget.max_candidate_tokens": Sourced(100, "§5.3"),
        "encoder.turn_separators": code(False),
        "decision": ours(
            "threshold", "a threshold of 0.4 to 0.8 set by hand for each setting; here fitted on validation"
        ),
    }


def gain_rule() -> dict[str, Sourced]:
    """Return ICAST's choice of the view."""
    return {
        "gain_threshold": Sourced(0.02, "§5.3", "0.0 for MANtIS with 5 and 10 %: an exception of the tables"),
        "scale": Sourced("absolute", "§5.3"),
        "confidence": Sourced("information", "Eq. 10", "one term of the entropy; here both, as in the code"),
        "intents.choice": code("threshold"),
        "intents.threshold": code(0.5),
    }


def pseudo_label_rule() -> dict[str, Sourced]:
    """Return the thresholds of ICAST's pseudo labels."""
    return {
        "positive_threshold": Sourced(0.8, "§5.3"),
        "negative_threshold": Sourced(0.1, "§5.3"),
        "calibrated_positive_threshold": Sourced(0.5, "§5.3"),
        "calibrated_negative_threshold": Sourced(0.5, "§5.3"),
        "confidence_threshold": Sourced(0.2, "§5.3"),
        "same_candidate": code(False),
        "calibrate_confident_pools": code(False, "Eq. 14 also labels them; the code leaves them out"),
    }


def _rounds(*, with_intents: bool) -> dict[str, Sourced]:
    restarts = "optimiser and schedule continue from round to round; here each round starts its own"
    return {
        "regime.with_intents": Sourced(with_intents, "§4.1" if with_intents else "§3.3"),
        "regime.num_rounds": code(4, "8 with 10 %: an exception of the tables"),
        "regime.pools_per_round": code(None),
        "regime.keep": ours("best", "a person picks the student on the development set; here the best on validation"),
        **under("regime.teacher", icast_training()),
        **under("regime.student", icast_optimiser()),
        "regime.student.epochs": Sourced(5, "Alg. 1", restarts),
        "regime.student.patience": code(5),
        "regime.student.selection_metric": ours("F1", "the weights after five epochs; here the best of the five"),
    }


def icast() -> dict[str, Sourced]:
    """Return ICAST's preset."""
    return {
        **icast_encoder(),
        "uncertainty.num_passes": Sourced(5, "§5.3"),
        **under("regime.rule", gain_rule()),
        **under("regime.rule", pseudo_label_rule()),
        **_rounds(with_intents=True),
    }


def icast_teacher() -> dict[str, Sourced]:
    """Return the preset of ICAST's teacher."""
    return {
        **icast_encoder(),
        "uncertainty.num_passes": Sourced(5, "§5.3"),
        "regime.with_intents": Sourced(True, "§4.1"),
        **under("regime.rule", gain_rule()),
        **under("regime.training", icast_training()),
    }


def tsst() -> dict[str, Sourced]:
    """Return the preset of TSST, which is ICAST without intents (Eq. 5 and 6)."""
    thresholds = {**pseudo_label_rule(), "confidence_threshold": Sourced(1.0, "§3.3")}  # no answer-label calibration
    del thresholds["same_candidate"]
    return {**icast_encoder(), **under("regime.rule", thresholds), **_rounds(with_intents=False)}


def icast_baseline() -> dict[str, Sourced]:
    """Return the preset of BERT, as ICAST trains it."""
    return {**icast_encoder(), **under("regime.training", icast_training())}


# GPF-BERT and PG-DRR (Ye et al. 2023)


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
        "regime.training.train_negatives": Sourced(negatives, section),
        "regime.training.schedule": Sourced("constant", _PENHA),
        "regime.training.warmup_fraction": Sourced(0.0, _PENHA),
        "regime.training.max_grad_norm": Sourced(0.5, _PENHA),
    }


def gpf() -> dict[str, Sourced]:
    """Return what all rows of GPF-BERT's tables have in common."""
    return {
        "encoder.backbone": ours("bert-base-cased", "BERT with 12 layers; cased in PG-DRR, by the same authors"),
        **_calibration_study(rate=5e-6, negatives=9, epochs=Sourced(1, "§3.1"), section="§3.1"),
        "regime.training.head_learning_rate": Sourced(None, "§3.1"),
    }


def pg() -> dict[str, Sourced]:
    """Return what all rows of PG-DRR's tables have in common."""
    epochs = Sourced(3, "§4.4", "1 for MANtIS: an exception of the tables")
    return {
        "encoder.backbone": Sourced("bert-base-cased", "§4.3"),
        **_calibration_study(rate=1e-5, negatives=1, epochs=epochs, section="§4.4"),
        "regime.training.head_learning_rate": Sourced(None, "§4.4"),
    }


def gp_by_random_features() -> dict[str, Sourced]:
    """Return the head of SNGP and GPF-BERT, as GPF-BERT describes it."""
    return {
        "head.features": Sourced("cosine", "Eq. 3"),
        "head.num_features": ours(2048, "not stated; 2048 fits the number of parameters in Table 3"),
        "head.length_scale": ours(None, "W ~ N(0, 1) in Eq. 2, with which all kernels are 0; here √(D/2)"),
        "head.spectral_bound": Sourced(1.0, "§2.1"),
        # MiniLM's matrices have norms of 2.3 to 11.7. With a bound of 1 on all of them, the features of 48 different
        # pairs have a mean cosine of .999 instead of .78: nothing is left to learn from in one epoch at 5e-6.
        "encoder.spectral_norm": ours(None, "§2.1 bounds each layer; the parameters of Table 3 fit one dense layer"),
        "head.dropout": Sourced(0.1, "§3.1"),
        "head.activation": ours("tanh"),
        "head.ridge": Sourced(1.0, "Eq. 4"),
        "head.ridge_choice": Sourced("fixed", "Eq. 4"),
        "head.likelihood": Sourced("logistic", "Eq. 4"),
        "head.effective_n": Sourced(None, "Eq. 4"),
        "head.laplace": Sourced("exact", "Eq. 4", "a moving average of batches (Eq. 5), which loses the prior"),
        "uncertainty.integration": Sourced("mean_field", "§2.1"),
        "uncertainty.mean_field_factor": ours(math.pi / 8, "not stated; π/8 in Lu et al. (2020)"),
    }


def focal_loss() -> dict[str, Sourced]:
    """Return GPF-BERT's loss."""
    return {"loss.gamma": ours(2.0, "γ ≥ 1 (§2.2), without a value")}


def passes_of_dropout(section: str) -> dict[str, Sourced]:
    """Return the passes of MC dropout in both papers."""
    return {"uncertainty.num_passes": Sourced(10, section)}


def sngp_of_pg() -> dict[str, Sourced]:
    """Return SNGP's head where PG-DRR compares with it: the paper only names it, so it is SNGP's own (Liu et al.)."""
    sngp_code = "code of Liu et al. (2020)"
    return {
        **gp_by_random_features(),
        "head.num_features": ours(2048, "not stated; 2048 fits the number of parameters in Table 2"),
        "head.length_scale": ours(None, "not stated; √(D/2) is close to SNGP's code"),
        "head.spectral_bound": Sourced(0.95, sngp_code),
        "encoder.spectral_norm": Sourced(None, sngp_code),
        "head.dropout": Sourced(0.1, "§4.4"),
        "head.ridge": ours(1.0),
        "head.ridge_choice": ours("fixed"),
        "head.likelihood": ours("logistic"),
        "head.effective_n": ours(None),
        "head.laplace": ours("exact"),
        "head.features": Sourced("cosine", "§4.3"),
        "uncertainty.integration": Sourced("mean_field", sngp_code),
        "uncertainty.mean_field_factor": ours(math.pi / 8, "not stated; 0.1 in SNGP's code, π/8 by theory"),
    }


def polya_gamma() -> dict[str, Sourced]:
    """Return PG-DRR's head, its chains, and its learning rate."""
    return {
        "regime.training.head_learning_rate": Sourced(3e-3, "§4.4"),
        "head.kernel": Sourced("rbf", "§4.4"),
        "head.length_scale": Sourced(1.0, "§4.4"),
        "head.output_scale": Sourced(8.0, "§4.4"),
        "head.learn_kernel": Sourced(False, "§4.4"),
        "head.num_steps": Sourced(10, "§4.4"),
        "head.prediction_steps": Sourced(10, "§4.4"),
        "head.num_chains": Sourced(30, "§4.4"),
        "head.normalise": ours(True, "not stated; without it the kernel of two different pairs is 0"),
        "head.train_sampler": ours("series"),
        "head.support.size": ours(256, "no word on the pairs that prediction conditions on"),
        "head.support.positive_share": ours(0.5, "no word on the pairs that prediction conditions on"),
        "loss.balanced": ours(True),
        "uncertainty.integration": Sourced("quadrature", "Eq. 14"),
        "uncertainty.num_nodes": ours(32),
    }


# Answer selectors that ICAST compares with


def iart() -> dict[str, Sourced]:
    """Return IART as its authors released it, which is what ICAST ran."""
    return {
        **_cross_encoder_alone("§3"),
        "encoder.backbone": ours("bert-base-uncased", "words; here the word pieces of this tokenizer"),
        "encoder.max_turns": code(6),
        "encoder.max_words": code(200, "180 for Ubuntu"),
        "encoder.embedding_size": code(200),
        "encoder.num_blocks": code(4),
        "encoder.num_channels": code(16),
        "encoder.intent_attention": code("bilinear"),
        "loss.max_loss": code(10.0),
        "regime.training.epochs": code(5),
        "regime.training.learning_rate": code(1e-3),
        "regime.training.schedule": code("staircase"),
        "regime.training.warmup_fraction": code(0.0),
        "regime.training.weight_decay": code(0.0),
        "regime.training.batch_size": code(32),
        "regime.training.max_grad_value": code(1.0),
        "regime.training.max_grad_norm": code(None),
        "regime.training.patience": code(5),
        "pretraining.word_vectors.window": ours(5),
        "pretraining.intent_classifier.training.epochs": ours(50),
    }


def bert_fp() -> dict[str, Sourced]:
    """Return BERT_FP as its authors released it (Han et al. 2021), which is what ICAST ran."""
    whole = "256 tokens, of which the longer of context and answer is cut; here a budget for each"
    return {
        "similarity": Sourced(None, "§3"),
        "intent": Sourced(None, "§3"),
        "calibration": Sourced(None, "§3"),
        "encoder.backbone": code("bert-base-uncased"),
        "encoder.turn_separators": code(True, "a new token; here [SEP]"),
        "encoder.budget.max_context_tokens": ours(153, whole),
        "encoder.budget.max_candidate_tokens": ours(100, whole),
        "post_training.max_length": code(240),
        "post_training.context_utterances": code(3),
        "post_training.masked_word_weight": code(1.0),
        "post_training.training.epochs": code(34, "25 for Ubuntu, up to 34 for the other corpora"),
        "post_training.training.learning_rate": code(3e-5, "1.5e-5 for Ubuntu"),
        "post_training.training.batch_size": code(50),
        "post_training.training.weight_decay": code(0.01),
        "post_training.training.warmup_fraction": code(0.01),
        "post_training.training.schedule": code("plateau"),
        "regime.training.epochs": code(2),
        "regime.training.patience": code(2),
        "regime.training.learning_rate": code(1e-5),
        "regime.training.head_learning_rate": code(None),
        "regime.training.batch_size": code(32),
        "regime.training.train_negatives": code(1),
        "regime.training.schedule": code("constant"),
        "regime.training.warmup_fraction": code(0.0),
        "regime.training.max_grad_norm": code(5.0, "clips after the step, which does nothing"),
    }


def sam() -> dict[str, Sourced]:
    """Return SAM: ICAST ran its released code, of which we know the description (Zhang R. et al. 2022)."""
    described = "a two-layer matching network on BERT; its inside is not described"
    return {
        **icast_baseline(),
        "encoder.turn_separators": ours(True, described),
        "encoder.matching_size": ours(256, described),
        "encoder.similarity_features": Sourced(True, "abstract"),
        "regime.training.learning_rate": ours(2e-5, described),
        "regime.training.head_learning_rate": ours(1e-3, described),
    }


def jm() -> dict[str, Sourced]:
    """Return JM (Zhang L. et al. 2021), as ICAST's authors implemented it."""
    abstract = "all candidates in one sequence; layout and budget are not described"
    return {
        **icast_baseline(),
        "encoder.budget.max_context_tokens": ours(192, abstract),
        "encoder.budget.max_candidate_tokens": ours(30, abstract),
        "regime.training.batch_size": ours(4, "16, of pairs; here pools"),
        "decision": ours("argmax", "P, R and R@1 are nearly equal in ICAST's Table 2"),
    }


def grn() -> dict[str, Sourced]:
    """Return GRN (Liu Y. et al. 2021), as ICAST's authors implemented it."""
    abstract = "the abstract names the tasks and the two networks, not their sizes"
    values = {
        **icast_baseline(),
        "encoder.turn_separators": ours(True, abstract),
        "encoder.graph_layers": ours(2, abstract),
        "encoder.branches": Sourced("both", "abstract"),
        "regime.training.batch_size": ours(4, "16, of pairs; here pools"),
        "regime.training.train_negatives": ours(3, abstract),
        "decision": ours("argmax", "P, R and R@1 are nearly equal in ICAST's Table 2"),
    }
    del values["post_training"]  # NUP and UOP are its own
    return values


def generated_contrast(task: str) -> dict[str, Sourced]:
    """Return what GRAY (Lin et al. 2020) and BIG (Deng Y. et al. 2021) have in common, as ICAST implemented them."""
    abstract = f"a generation model, fine-tuned; {task}; neither model nor weights are named"
    return {
        **icast_baseline(),
        "regime.generator": Sourced("language-model", "ICAST §5.2"),
        "regime.generator.model": ours("facebook/bart-base", abstract),
        "regime.contrast.weight": ours(1.0, abstract),
    }


def gray() -> dict[str, Sourced]:
    """Return GRAY, as ICAST's authors implemented it."""
    abstract = "a ranking loss of several levels; margins and numbers of answers are not described"
    return {
        **generated_contrast("it writes grey answers"),
        "regime.contrast.num_grey": ours(2, abstract),
        "regime.contrast.margin": ours(0.2, abstract),
        "regime.contrast.wide_margin": ours(0.4, abstract),
        "regime.training.train_negatives": ours(1, abstract),
        "calibration": ours("platt", "a hinge is no likelihood, so a map precedes the threshold"),
    }


def big() -> dict[str, Sourced]:
    """Return BIG, as ICAST's authors implemented it."""
    return generated_contrast("it writes questions and answers in both directions")
