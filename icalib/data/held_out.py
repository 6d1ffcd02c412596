"""Validation and test pools for a source that has training pools only, or lacks one of the two."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from icalib.core.seeding import child_seed
from icalib.data.corpus import Corpus
from icalib.data.schema import SPLITS, UNKNOWN_LABEL, Split
from icalib.data.settings import PrepareSettings
from icalib.data.spill import Spill
from icalib.data.splits import FRACTIONS

_MAX_FRACTION = 1 / 3


def hold_out(corpus: Corpus, folder: Path, settings: PrepareSettings) -> list[str]:
    """Move training dialogues to the splits that have no pools, and return a message for each such split.

    Which dialogues is drawn by their ids and the seed; those with a pool whose right candidate is unknown stay. A
    source without training pools is left as it is: it may be meant for `score` or `evaluate`.
    """
    moved = _moved_dialogues(corpus, settings)
    taken: list[Split] = [split for split in SPLITS if split in moved.values()]
    if not taken:
        return []
    earlier = corpus.spills["train"]
    splits: list[Split] = ["train", *taken]
    begun: dict[Split, Spill] = {split: Spill(folder / f"held-out-{split}.arrow") for split in splits}
    corpus.replace(begun)
    corpus.split_origins.add("drawn")
    for row in earlier.rows():
        corpus.add({**row, "split": moved.get(row["dialog_id"], "train")})
    for spill in begun.values():
        spill.close()
    if "train" in corpus.mined:
        corpus.mined.update(taken)
    num_dialogues = Counter(moved.values())
    return [
        f"the source has no {split} pools: {corpus.num_rows[split]} pools of {num_dialogues[split]} training dialogues "
        f"are used for it (drawn with seed {settings.seed})"
        for split in taken
    ]


def _moved_dialogues(corpus: Corpus, settings: PrepareSettings) -> dict[str, Split]:
    """Return the new split of each dialogue that leaves the training pools."""
    num_pools, unknown, with_intents = Counter[str](), set[str](), set[str]()
    rows = corpus.spills["train"].rows(columns=["dialog_id", "label"])
    for row, has_intents in zip(rows, corpus.has_intents, strict=True):
        num_pools[row["dialog_id"]] += 1
        if has_intents:
            with_intents.add(row["dialog_id"])
        if row["label"] == UNKNOWN_LABEL:
            unknown.add(row["dialog_id"])
    draw = {dialog_id: child_seed(settings.seed, "held out", dialog_id) for dialog_id in num_pools.keys() - unknown}
    last = with_intents if settings.intents_in == "train" else set[str]()
    order = iter(sorted(draw, key=lambda dialog_id: (dialog_id in last, draw[dialog_id], dialog_id)))
    # mined candidates are other responses of the split
    min_pools = 2 * settings.num_candidates if "train" in corpus.mined else 1
    moved: dict[str, Split] = {}
    for split, fraction in zip(SPLITS[1:], FRACTIONS[1:], strict=True):
        if corpus.num_rows[split]:
            continue
        wanted, limit = max(1, round(fraction * len(num_pools))), int(_MAX_FRACTION * len(num_pools))
        taken = taken_pools = 0
        while taken < limit and (taken < wanted or taken_pools < min_pools) and (dialog_id := next(order, "")):
            moved[dialog_id] = split
            taken, taken_pools = taken + 1, taken_pools + num_pools[dialog_id]
    return moved
