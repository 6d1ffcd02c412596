"""Scaled dot-product attention with dropout of its weights, for transformers' models on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from typing_extensions import override

from icalib.encoders.dropout import draw_mask, mask_in_place, masked, scale_of

ATTENTION = "icalib_sdpa"
"""Name under which `attention` is registered with transformers."""

_ROW = 32  # softmax of bfloat16 takes twice as long for rows that don't fill whole vector registers


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """Compute scaled dot-product attention [B, heads, L, D/heads] → [B, L, heads, D/heads] with dropout of weights; by
    torch unless it would draw random numbers on a CPU. Several heads of queries may share one of keys and values.
    """
    if (shared := query.shape[1] // key.shape[1]) > 1:
        key, value = (states.repeat_interleave(shared, 1) for states in (key, value))
    query, key = query.to(value.dtype), key.to(value.dtype)  # rotated in float32, which autocast leaves so (EuroBERT)
    if query.device.type != "cpu" or dropout == 0.0 or not module.training:
        p = dropout if module.training else 0.0
        mixed = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=attention_mask, dropout_p=p, scale=scaling
        )
        return mixed.transpose(1, 2).contiguous(), None
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    mixed = _Attention.apply(query, key, value, attention_mask, scale, dropout)
    return mixed, None  # pyright: ignore[reportReturnType]


def register_attention() -> None:
    """Register `attention` with transformers; its masks are those of SDPA.

    cuDNN's kernel, which torch prefers on recent GPUs, makes a plan for each new shape of a batch: 160 ms of an update
    that takes 40 otherwise (BERT-base, H200). The others have none.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(ATTENTION, attention)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
    torch.backends.cuda.enable_cudnn_sdp(False)


class _Attention(Function):
    """c · (softmax(s QKᵀ + mask) ∘ K) V with a dropout mask K and its scale c.

    Products scale and add within the matrix multiplication, rows of bfloat16 weights are padded to whole vector
    registers, and backward keeps the weights and the integer mask instead of float masks and copies. Shapes:
    N = B · heads, L queries, M ≥ L padded keys, d = D / heads.
    """

    @staticmethod
    @override
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, scale: float, p: float
    ) -> Tensor:
        shape, num_keys = query.shape, key.shape[2]
        padded = -(-num_keys // _ROW) * _ROW if query.dtype is torch.bfloat16 else num_keys
        query_NLd = query.reshape(-1, *shape[2:])
        key_NMd, value_NMd = _padded(key, padded), _padded(value, padded)
        if attention_mask is None and padded == num_keys:
            scores_NLM = _product(query_NLd, key_NMd.mT, scale)
        else:
            bias_NLM = _mask_bias(query, attention_mask, num_keys, padded)
            scores_NLM = bias_NLM.baddbmm_(query_NLd, key_NMd.mT, alpha=scale)
        weights_NLM = scores_NLM.softmax(-1)
        mask_NLM = draw_mask(weights_NLM.shape, weights_NLM.dtype, p)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(query_NLd, key_NMd, value_NMd, weights_NLM, mask_NLM)
            ctx.shape, ctx.num_keys, ctx.scale, ctx.p = shape, num_keys, scale, p
            dropped_NLM = masked(weights_NLM, mask_NLM)
        else:
            dropped_NLM = mask_in_place(weights_NLM, mask_NLM)
        mixed_NLd = _product(dropped_NLM, value_NMd, scale_of(p))
        return mixed_NLd.view(*shape[:3], -1).transpose(1, 2).contiguous()

    @staticmethod
    @override
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query_NLd, key_NMd, value_NMd, weights_NLM, mask_NLM = ctx.saved_tensors
        batch, heads, length, _ = ctx.shape
        kept_scale, num_keys = scale_of(ctx.p), ctx.num_keys
        grad_NLd = grads[0].transpose(1, 2).reshape(batch * heads, length, -1)
        grad_value_NMd = _product(masked(weights_NLM, mask_NLM).mT, grad_NLd, kept_scale)
        grad_weights_NLM = mask_in_place(_product(grad_NLd, value_NMd.mT, kept_scale), mask_NLM)
        grad_scores_NLM = torch._softmax_backward_data(  # pyright: ignore[reportPrivateUsage]
            grad_weights_NLM, weights_NLM, -1, weights_NLM.dtype
        )
        grad_query_NLd = _product(grad_scores_NLM, key_NMd, ctx.scale)
        grad_key_NMd = _product(grad_scores_NLM.mT, query_NLd, ctx.scale)
        by_head = [
            grad[:, :size].reshape(batch, heads, size, -1)
            for grad, size in ((grad_query_NLd, length), (grad_key_NMd, num_keys), (grad_value_NMd, num_keys))
        ]
        return *by_head, None, None, None


def _padded(states: Tensor, length: int) -> Tensor:
    """Return [B, heads, L, d] as [N, length, d], with zeros at the end."""
    padded = states.new_zeros(states.shape[0] * states.shape[1], length, states.shape[3])
    padded[:, : states.shape[2]].view(states.shape).copy_(states)
    return padded


def _mask_bias(query: Tensor, attention_mask: Tensor | None, num_keys: int, padded: int) -> Tensor:
    """Return what is added to the scores [N, L, M]: the lowest number where a key is masked or padding, else 0."""
    batch, heads, length, _ = query.shape
    lowest = torch.finfo(query.dtype).min
    bias = query.new_zeros(batch if attention_mask is not None else 1, 1, length, padded)
    bias[..., num_keys:] = lowest
    if attention_mask is not None:
        bias[..., :num_keys].masked_fill_(~attention_mask, lowest)
    return query.new_empty(batch, heads, length, padded).copy_(bias).view(batch * heads, length, padded)


def _product(left: Tensor, right: Tensor, scale: float) -> Tensor:
    """Return scale · left @ right, [N, i, j] and [N, j, k], with the scale applied before rounding."""
    return torch.baddbmm(left.new_empty(()), left, right, beta=0, alpha=scale)
