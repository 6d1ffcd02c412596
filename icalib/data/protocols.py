"""How three papers made their pools, as data: ICAST (Deng et al. 2023), GPF-BERT and PG-DRR (Ye et al. 2023).

A protocol sets settings of `prepare`, each with the place that it comes from. What a paper states can't be set
otherwise; what it leaves open is our choice, and an option overrides it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from icalib.core.errors import SettingError
from icalib.core.storage import location
from icalib.data.schema import PoolSet
from icalib.data.settings import PrepareSettings

OURS = "not stated: ours"
"""Where a value comes from that a paper leaves open."""
MIN_POOLS = 100
"""Test or validation pools that are enough: R@1 then has a standard error of .05 at most. Ours."""
_MANY_TURNS = 100
"""More utterances than fit into 512 tokens, so that the token budget alone cuts a context."""


@dataclass(frozen=True)
class Rule:
    """A setting of a protocol."""

    value: Any
    source: str
    """Section, table or code that it comes from, or `OURS` and why."""
    also: tuple[Any, ...] = ()
    """Other values that the source has, too."""

    def __str__(self) -> str:
        return f"the paper: {self.value} ({self.source})" if self.is_stated else f"the protocol: {self.value} ({OURS})"

    @property
    def is_stated(self) -> bool:
        """Whether the paper or its authors' code says so."""
        return not self.source.startswith(OURS)


@dataclass(frozen=True)
class Protocol:
    """How a paper made its pools."""

    name: str
    paper: str
    rules: Mapping[str, Rule]
    """By the name of a setting of `PrepareSettings`."""
    of_reader: Mapping[str, Mapping[str, Rule]] = field(default_factory=dict[str, Mapping[str, Rule]])
    """Rules that are different for the sources of some readers."""
    own_pools: tuple[str, ...] = ()
    """Readers whose ready pools are the paper's own or have candidates that it used."""
    differs: Mapping[str, str] = field(default_factory=dict[str, str])
    """What `prepare` does otherwise than the paper, by reader."""

    def rules_for(self, reader: str) -> Mapping[str, Rule]:
        """Return the rules for sources of a reader."""
        return {**self.rules, **self.of_reader.get(reader, {})}


PROTOCOLS: Mapping[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            "icast",
            "ICAST (Deng et al. 2023)",
            {
                "num_candidates": Rule(10, "§5.1"),
                "negative_sampler": Rule("bm25-response", "§5.1"),
                "unanswerable": Rule(0.0, "§5.1"),
                "answers": Rule("accepted", "§5.1"),
                "intents_in": Rule("train", "§5.1"),
                "context_turns": Rule(4, "§5.3"),
                "labelled": Rule(0.01, "Table 1", also=(0.05, 0.1)),
                # MANtIS marks the first answer only, which has one utterance before it
                "min_context": Rule(1, f"{OURS}; every accepted answer counts"),
            },
            own_pools=("icast",),
        ),
        Protocol(
            "gpf",
            "GPF-BERT (Ye et al. 2023)",
            {
                "num_candidates": Rule(10, "§3.1"),
                "negative_sampler": Rule("random", "§3.1"),  # said of training; R10@1 leaves open how it is tested
                "unanswerable": Rule(0.0, "§3.1"),
                "labelled": Rule(1.0, "§3.1"),
                "context_turns": Rule(_MANY_TURNS, f"{OURS}; the token budget cuts contexts"),
            },
            own_pools=("mantis-tsv", "udc"),
        ),
        Protocol(
            "pg",
            "PG-DRR (Ye et al. 2023)",
            {
                "num_candidates": Rule(10, "§4.2"),
                "negative_sampler": Rule("random", "§4.2"),
                "unanswerable": Rule(0.0, "§4.1"),
                "labelled": Rule(1.0, "§4.4"),
                "context_turns": Rule(_MANY_TURNS, f"{OURS}; the token budget cuts contexts"),
            },
            of_reader={"mantis": {"negative_sampler": Rule("bm25-response", "§4.1")}},
            differs={"mantis": "BM25's negatives in training pools, the paper: random ones there (§4.4)"},
            own_pools=("mantis-tsv", "udc"),
        ),
    )
}
"""The protocols, by name."""

_OPTIONS = {
    "num_candidates": "--candidates",
    "negative_sampler": "--negatives",
    "context_turns": "--context-turns",
    "min_context": "--min-context",
    "labelled": "--labelled",
    "unanswerable": "--unanswerable",
}


def with_protocol(settings: PrepareSettings, reader: str) -> PrepareSettings:
    """Return settings with what their protocol sets for a reader's sources; those that were given are kept, or refused
    by a SettingError where they contradict what the paper states.
    """
    if settings.protocol is None:
        return settings
    protocol = PROTOCOLS[settings.protocol]
    rules = protocol.rules_for(reader)
    given = {name for name in settings.model_fields_set & rules.keys() if getattr(settings, name) is not None}
    for name in sorted(given):
        rule, value = rules[name], getattr(settings, name)
        if rule.is_stated and value not in (rule.value, *rule.also):
            option, wanted = _OPTIONS.get(name, name), " or ".join(map(str, (rule.value, *rule.also)))
            raise SettingError(
                f"{option} {value} contradicts --protocol {protocol.name}: {protocol.paper} has {wanted} "
                f"({rule.source}). Leave out one of the two."
            )
    return settings.model_copy(update={name: rule.value for name, rule in rules.items() if name not in given})


def unmet(pool_set: PoolSet, protocol: Protocol) -> list[str]:
    """Return sentences that say where pools, by their metadata, differ from a protocol; none where they meet it."""
    rules = protocol.rules_for(pool_set.reader)
    own = pool_set.negative_sampler == "source" and pool_set.reader in protocol.own_pools
    labels = {
        "num_candidates": "candidates",
        "answers": "right responses",
        "context_turns": "utterances of a context, at most",
    } | ({} if own else {"negative_sampler": "negatives"})
    found = [
        f"{label}: {getattr(pool_set, name)}, {rules[name]}"
        for name, label in labels.items()
        if name in rules and getattr(pool_set, name) != rules[name].value
    ]
    found += [protocol.differs[pool_set.reader]] if pool_set.reader in protocol.differs else []
    if (rule := rules.get("intents_in")) and not own:
        elsewhere = [split for split in pool_set.intents_in if split != rule.value]
        if elsewhere or not pool_set.intents:
            where = f"also in {' and '.join(elsewhere)} pools" if elsewhere else "none"
            found.append(f"intents: {where}, the paper: in {rule.value} pools alone ({rule.source})")
    for number_of, what in ((pool_set.num_unanswerable, "no"), (pool_set.num_several_right, "several")):
        found += [
            f"{number} {split} pools with {what} right candidate{'s' * (what == 'several')}, the paper: one"
            for split, number in number_of.items()
        ]
    if pool_set.limit is not None:
        found.append(f"at most {pool_set.limit} pools of a split (--limit), the paper: all")
    found += [
        f"{number} {split} pools: too few, {MIN_POOLS} are enough"
        for split, number in pool_set.num_pools.items()
        if number < (1 if split == "train" else MIN_POOLS)
    ]
    return found


def prepare_command(pool_set: PoolSet, protocol: Protocol, folder: str | Path) -> str:
    """Return the command that prepares a set's source by a protocol, beside the set's own folder. Options that say how
    to read it (`--speakers`, `--columns`, `--map-intents`) have to be added.
    """
    folder = Path(folder)
    out = location(folder.with_name(f"{folder.name}-{protocol.name}"))
    words = ["icalib", "prepare", pool_set.source, "--out", str(out), "--protocol", protocol.name]
    if ":" in pool_set.reader:  # nothing detects the format of somebody's own reader
        words += ["--format", pool_set.reader]
    return shlex.join(words)
