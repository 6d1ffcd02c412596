"""What the settings of a method require of each other, and the one check that compares it with what they provide."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple


class Capability(NamedTuple):
    """What one setting may provide and others require; a package outside of icalib can make its own."""

    setting: str
    """The setting that may provide it, e.g. encoder."""
    name: str
    """A noun phrase, for errors."""
    cure: str
    """What to set where it is required and missing."""


Capabilities = Set[Capability]

BACKBONE = Capability(
    "encoder",
    "a pre-trained backbone",
    "Use another encoder, or set `domain_pretraining`, `similarity` and `intent` to null, in a regime without intents",
)
DROPOUT = Capability("encoder", "dropout", "Use `uncertainty` deterministic, or posterior with a head that has one")
OWN_WORD_VECTORS = Capability("encoder", "word vectors of its own", "Set `pretraining` to null, or `encoder` to iart")
PAIR_LOGITS = Capability(
    "head",
    "logits of pairs in training",
    "Use linear-head or random-feature-head, or `loss` head-objective in a regime that compares no logits",
)
OWN_OBJECTIVE = Capability("head", "its own training objective", "Use polya-gamma-head, or e.g. binary-cross-entropy")
POSTERIOR = Capability("head", "a posterior of logits", "Use random-feature-head or polya-gamma-head, or mc-dropout")
PAIR_PROBS = Capability(
    "loss",
    "a probability of each pair by itself",
    "Use a loss of pairs, e.g. binary-cross-entropy. A softmax over pools goes with linear-head and `uncertainty` "
    "deterministic, without intents, and with `similarity` and `intent` null",
)
POOL_PROBS = Capability("loss", "probabilities of whole pools", "Use pool-cross-entropy, or another encoder")
UNCERTAINTY = Capability(
    "uncertainty",
    "an uncertainty estimate",
    "Without one, every gain of intents is 0, and plain and estimated members are the same. Use mc-dropout or "
    "posterior, a regime without intents (bert, tsst), or members=independent",
)
CROSS_ENCODER = Capability("cross", "a cross-encoder", "Set `cross` to true, or use mc-dropout")
TRAINING = Capability(
    "regime", "training", "Without it, a bi-encoder ranks: set `domain_pretraining` to contrastive or null"
)
EPOCHS = Capability(
    "regime", "1 epoch or more", "With `epochs` 0, a cross-encoder learns nothing: set `cross` to false"
)
WHOLE_POOLS = Capability(
    "regime", "training on whole pools", "Use supervised or ensemble, or e.g. binary-cross-entropy"
)
POOL_TEXTS = Capability("regime", "training on texts of pools alone", "Set `similarity` and `intent` to null")


class Combinable:
    """Base of settings that may require something of a method's other settings."""

    def provides(self) -> Capabilities:
        """Return what other settings may require of this one."""
        return frozenset()

    def requires(self) -> Capabilities:
        """Return what other settings must provide."""
        return frozenset()


def check_combination(settings: Mapping[str, Combinable | None]) -> None:
    """Raise a ValueError if one of a method's settings requires what another, by name, doesn't provide.

    Nothing is required of settings that are left out, because the method doesn't read them.
    """
    present = {name: value for name, value in settings.items() if value is not None}
    provided = {capability for value in present.values() for capability in value.provides()}
    for name, value in present.items():
        for capability in sorted(value.requires() - provided):
            if capability.setting in settings:
                found = settings[capability.setting]
                raise ValueError(
                    f"found {'nothing' if found is None else _title(found)} as `{capability.setting}`, expected "
                    f"{capability.name}, which {_title(value)} (`{name}`) requires. {capability.cure}"
                )


def _title(settings: Combinable) -> str:
    """Return the name of settings' component, or of their class."""
    return type(settings).__qualname__.removesuffix(".Config").rpartition(".")[2]
