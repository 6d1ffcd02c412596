from __future__ import annotations

import re
from typing import Any

import pytest

from icalib.core.combination import (
    BACKBONE,
    CROSS_ENCODER,
    DROPOUT,
    EPOCHS,
    OWN_OBJECTIVE,
    OWN_WORD_VECTORS,
    PAIR_LOGITS,
    PAIR_PROBS,
    POOL_PROBS,
    POOL_TEXTS,
    POSTERIOR,
    TRAINING,
    UNCERTAINTY,
    WHOLE_POOLS,
    Capability,
)
from icalib.core.component import with_settings
from icalib.core.errors import SettingError
from icalib.methods.catalogue import load_method
from icalib.methods.method import Method

ALONE = {"similarity": None, "intent": None}
FROM_SCRATCH = {"encoder": "iart", "domain_pretraining": None}
OWN = {"head": "polya-gamma-head", "loss": "head-objective"}
GP = {"head": "random-feature-head"}
SELF_TRAINING = {"regime": "self-training", "regime.with_intents": False}


@pytest.mark.parametrize(
    ("name", "changes", "found", "missing", "requiring"),
    [
        ("iart", {"domain_pretraining": "utterance-order"}, "IART", BACKBONE, "UtteranceOrder"),
        ("iart", {"similarity": {}}, "IART", BACKBONE, "Similarity"),
        ("icast", FROM_SCRATCH | ALONE | {"uncertainty": "posterior"} | GP, "IART", BACKBONE, "SelfTraining"),
        ("iart", {"uncertainty": "mc-dropout"}, "IART", DROPOUT, "MCDropout"),
        ("bert", {"pretraining": {}}, "TransformerEncoder", OWN_WORD_VECTORS, "Pretraining"),
        ("iart", {"encoder": "transformer-encoder"}, "TransformerEncoder", OWN_WORD_VECTORS, "Pretraining"),
        ("pg-drr", {"loss": "focal-loss"}, "PolyaGammaHead", PAIR_LOGITS, "FocalLoss"),
        ("gray", OWN, "PolyaGammaHead", PAIR_LOGITS, "Augmented"),
        ("bert", {"loss": "head-objective"}, "LinearHead", OWN_OBJECTIVE, "HeadObjective"),
        ("bert", {"uncertainty": "posterior"}, "LinearHead", POSTERIOR, "Posterior"),
        ("jm", {"similarity": {}}, "PoolCrossEntropy", PAIR_PROBS, "Similarity"),
        ("jm", GP, "PoolCrossEntropy", PAIR_PROBS, "RandomFeatureHead"),
        ("icast-teacher", {"loss": "pool-cross-entropy"} | ALONE, "PoolCrossEntropy", PAIR_PROBS, "MCDropout"),
        ("bert", {"loss": "pool-cross-entropy", "cross": False}, "PoolCrossEntropy", PAIR_PROBS, "Similarity"),
        ("jm", {"loss": "binary-cross-entropy"}, "BinaryCrossEntropy", POOL_PROBS, "JointEncoder"),
        ("bert", {"regime.with_intents": True}, "Deterministic", UNCERTAINTY, "Supervised"),
        ("icast", {"uncertainty": "deterministic"}, "Deterministic", UNCERTAINTY, "SelfTraining"),
        ("ensemble", {"regime.members": "plain_and_estimated"}, "Deterministic", UNCERTAINTY, "Ensemble"),
        ("sngp", {"cross": False}, "nothing", CROSS_ENCODER, "Posterior"),
        ("bi-encoder", {"domain_pretraining": "utterance-order"}, "Untrained", TRAINING, "UtteranceOrder"),
        ("tsst", {"regime.teacher.epochs": 0}, "SelfTraining", EPOCHS, "CrossEncoder"),
        ("sngp", {"regime.training.epochs": 0, "head.laplace": "ema"}, "Supervised", EPOCHS, "CrossEncoder"),
        ("jm", SELF_TRAINING, "SelfTraining", WHOLE_POOLS, "PoolCrossEntropy"),
        ("gray", {"loss": "pool-cross-entropy"}, "Augmented", WHOLE_POOLS, "PoolCrossEntropy"),
        ("gray", {"similarity": {}}, "Augmented", POOL_TEXTS, "Similarity"),
    ],
)
def test_what_is_required_and_missing_is_named_with_the_fix(
    name: str, changes: dict[str, Any], found: str, missing: Capability, requiring: str
) -> None:
    where = f"found {found} as `{missing.setting}`, expected {missing.name}, which {requiring} "
    with pytest.raises(SettingError, match=re.escape(where) + ".*" + re.escape(missing.cure)):
        with_settings(load_method(name), changes)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("iart", {"regime": "ensemble"}),
        ("iart", {"pretraining.word_vectors": None}),
        ("iart", {"pretraining.intent_classifier": None}),
        ("iart", {"pretraining": None}),
        ("icast", {"head": "random-feature-head", "uncertainty": "posterior"}),
        ("bert", {"cross": False, "regime.training.epochs": 0}),  # the bi-encoder as domain pre-training leaves it
        ("bi-encoder", {"similarity": {}, "cross": False, **FROM_SCRATCH}),  # without training there are no parts
    ],
)
def test_what_fits_is_accepted(name: str, changes: dict[str, Any]) -> None:
    assert isinstance(with_settings(load_method(name), changes), Method)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("bert", {"calibration": "prior-shift", "calibration.gamma": 2.0}, r"found .* γ = 0 .*expected 2,.* to null"),
        ("bert", {"cross": False, "similarity": None}, "found no part.*`intent` with a regime that has intents"),
    ],
)
def test_other_combinations_that_cannot_work_are_refused_with_the_fix(
    name: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        with_settings(load_method(name), changes)
