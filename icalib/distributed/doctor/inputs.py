"""Whether every node reads the same backbone and the same pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from icalib.core.check import Check, alike, by_node
from icalib.core.storage import local_path, location
from icalib.data.pools import read_pool_set
from icalib.distributed.doctor.nodes import Answers, Node, ask, refusal


def check_model(nodes: Sequence[Node], backbone: str) -> Check:
    """Whether config and tokenizer load everywhere, from the same files."""
    cure = (
        f"Give --backbone a folder that all nodes share, download `{backbone}` there into the cache of each of these "
        "nodes (`hf download`, and HF_HOME names the cache), or let them reach the hub."
    )
    answers = ask(nodes, model_digest, backbone)
    return refusal("model", answers, cure) or judge_alike("model", backbone, answers.given, cure)


def model_digest(backbone: str) -> str:
    """A digest of the backbone's files, after its config and tokenizer were loaded."""
    from icalib.encoders.backbone import backbone_digest, load_config, load_tokenizer

    load_config(backbone)
    load_tokenizer(backbone)
    return backbone_digest(backbone)


def check_data(nodes: Sequence[Node], data: Path) -> Check:
    """Whether every node reads the same pools."""
    place = location(data)
    cure = (
        f"Copy the pools to storage that all nodes share under the same path, and give --data that path, not {place}."
    )
    answers: Answers[str] = ask(nodes, data_digest, place)
    return refusal("data", answers, cure) or judge_alike("data", place, answers.given, cure)


def data_digest(place: str) -> str:
    """The digest of a pool set whose files are whole."""
    return read_pool_set(local_path(place)).digest


def judge_alike(name: str, place: str, digests: Mapping[str, str], cure: str) -> Check:
    """One digest, or several."""
    shown = {node: f"digest {digest[:8]}" for node, digest in digests.items()}
    if len(alike(shown)) > 1:
        return Check(name, "fail", f"{place} differs: {by_node(shown)}", cure)
    return Check(name, "ok", f"{place} is read by every node ({next(iter(shown.values()), 'no node')})")
