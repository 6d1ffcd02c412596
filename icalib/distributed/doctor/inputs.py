"""Checks that every node reads the same backbone and the same pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from icalib.core.check import Check, alike, by_node
from icalib.core.storage import local_path, location
from icalib.data.pools import read_pool_set
from icalib.distributed.doctor.nodes import Answers, Node, ask, refusal


def check_model(nodes: Sequence[Node], backbone: str) -> Check:
    """Check that every node loads config and tokenizer of the backbone from the same files."""
    cure = (
        f"Set --backbone to a folder that all nodes share, download `{backbone}` to the cache of each of these nodes "
        "(`hf download`; HF_HOME names the cache), or give them access to the hub."
    )
    answers = ask(nodes, model_digest, backbone)
    return refusal("model", answers, cure) or judge_alike("model", backbone, answers.given, cure)


def model_digest(backbone: str) -> str:
    """Load the backbone's config and tokenizer, and return the digest of its files."""
    from icalib.encoders.backbone import backbone_digest, load_config, load_tokenizer

    load_config(backbone)
    load_tokenizer(backbone)
    return backbone_digest(backbone)


def check_data(nodes: Sequence[Node], data: Path) -> Check:
    """Check that every node reads the same pools."""
    pools = location(data)
    cure = (
        f"Copy the pools to storage that all nodes share under the same path, and set --data to it instead of {pools}."
    )
    answers: Answers[str] = ask(nodes, data_digest, pools)
    return refusal("data", answers, cure) or judge_alike("data", pools, answers.given, cure)


def data_digest(pools: str) -> str:
    """Return the digest of a pool set, after checking that its files are complete."""
    return read_pool_set(local_path(pools)).digest


def judge_alike(name: str, source: str, digests: Mapping[str, str], cure: str) -> Check:
    """Return the check that all nodes found the same digest."""
    found = {node: f"digest {digest[:8]}" for node, digest in digests.items()}
    if len(alike(found)) > 1:
        return Check(name, "fail", f"{source} differs: {by_node(found)}", cure)
    return Check(name, "ok", f"{source} is the same on every node ({next(iter(found.values()), 'no node')})")
