"""A tiny random backbone of each family of encoders, with the oddities of its published models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import transformers
from helpers.tiny_models import SHAPE, byte_pairs, word_pieces, write_backbone
from tokenizers import processors

ROTARY = {name: SHAPE[name] for name in ("hidden_size", "num_hidden_layers", "num_attention_heads")}


class Family(NamedTuple):
    """How a family's configuration differs from BERT's, and its kind of tokenizer."""

    config: str
    """Class of transformers."""
    shape: Mapping[str, Any]
    tokenizer: Callable[[Iterable[str]], tuple[Any, dict[str, str]]] = word_pieces
    unused_positions: int = 0
    has_segments: bool = False

    @property
    def separates_turns(self) -> bool:
        """Whether stock tokenizers need separators between utterances to give the tokens of training."""
        return self.tokenizer is not word_pieces


def _llama_like(texts: Iterable[str]) -> tuple[Any, dict[str, str]]:
    """Byte-level BPE whose only special tokens begin and end a text; nothing is between two texts, nor at their end."""
    tokenizer, _ = byte_pairs(texts)
    begin = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A $B", [("<s>", begin)])
    return tokenizer, {"bos": "<s>", "eos": "</s>", "pad": "</s>", "mask": "<mask>"}


FAMILIES: Mapping[str, Family] = {
    "bert": Family("BertConfig", SHAPE, has_segments=True),
    "roberta": Family("RobertaConfig", {**SHAPE, "type_vocab_size": 1}, byte_pairs, unused_positions=2),
    "xlm-roberta": Family("XLMRobertaConfig", {**SHAPE, "type_vocab_size": 1}, byte_pairs, unused_positions=2),
    "mpnet": Family("MPNetConfig", SHAPE, byte_pairs, unused_positions=2),
    "electra": Family("ElectraConfig", {**SHAPE, "embedding_size": 16}, has_segments=True),
    "deberta-v2": Family(
        "DebertaV2Config",
        {**SHAPE, "type_vocab_size": 2, "relative_attention": True, "pos_att_type": ["c2p", "p2c"],
         "conv_kernel_size": 3},
        has_segments=True,
    ),
    "deberta-v3": Family(
        "DebertaV2Config",
        {**SHAPE, "type_vocab_size": 0, "relative_attention": True, "pos_att_type": ["p2c", "c2p"],
         "position_biased_input": False, "position_buckets": 8, "share_att_key": True, "norm_rel_ebd": "layer_norm"},
    ),
    "distilbert": Family("DistilBertConfig", {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}),
    "albert": Family("AlbertConfig", {**SHAPE, "embedding_size": 16}, has_segments=True),
    "modernbert": Family(
        "ModernBertConfig",
        {**ROTARY, "num_hidden_layers": 3, "intermediate_size": 48, "local_attention": 8},
        byte_pairs,
    ),
    "eurobert": Family(
        "EuroBertConfig", {**ROTARY, "intermediate_size": 64, "num_key_value_heads": 1}, _llama_like
    ),
}  # fmt: skip


def write_family(folder: Path, name: str, texts: Iterable[str]) -> Path:
    """A random backbone of a family, with 128 positions for tokens."""
    family = FAMILIES[name]
    tokenizer, names = family.tokenizer(texts)
    ids = {f"{one}_token_id": tokenizer.token_to_id(token) for one, token in names.items()}
    config = getattr(transformers, family.config)(
        vocab_size=tokenizer.get_vocab_size(),
        max_position_embeddings=128 + family.unused_positions,
        **{**ids, **family.shape},
    )
    return write_backbone(folder, lambda: transformers.AutoModel.from_config(config), tokenizer, names)
