"""What the models of a finished run have learnt from labels."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from icalib.models.ranker import Ranker, load_ranker, start_weights
from icalib.regimes.regime import Member, MethodParts, checkpoint


def learnt(members: Sequence[Member], parts: MethodParts) -> dict[str, bool]:
    """Return what trained models have learnt from labels.

    `by_bi_encoder`: whether they rank by their bi-encoders alone. `kept_start`: whether these are still as before any
    label, too; a student that kept its start may be a trained teacher.
    """
    has_bi_encoder = parts.ranker.similarity_start == "separate" and bool(members)
    found = [_learnt(member, parts) for member in members] if has_bi_encoder else []
    return {
        "by_bi_encoder": has_bi_encoder and all(by_bi_encoder for by_bi_encoder, _ in found),
        "kept_start": has_bi_encoder and all(kept_start for _, kept_start in found),
    }


def _learnt(member: Member, parts: MethodParts) -> tuple[bool, bool]:
    model = load_ranker(member.model.path)
    return model.is_at_start, model.is_at_start and _has_bi_encoder_of(model, parts)


def _has_bi_encoder_of(model: Ranker, parts: MethodParts) -> bool:
    first = Ranker(parts.ranker)
    if parts.start is not None:
        start_weights(first, checkpoint(parts.start).path)
    assert first.bi_encoder is not None
    assert model.bi_encoder is not None
    own, given = model.bi_encoder.state_dict(), first.bi_encoder.state_dict()
    return all(torch.equal(own[name], tensor) for name, tensor in given.items())
