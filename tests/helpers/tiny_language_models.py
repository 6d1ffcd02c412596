"""Tiny random language models: what tests use where users have BART or T5."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    M2M100Config,
    M2M100ForConditionalGeneration,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from icalib.encoders.backbone import quiet_transformers

Kind = Literal["bart", "t5", "m2m_100"]


def write_tiny_language_model(folder: Path, kind: Kind, texts: Iterable[str]) -> Path:
    """A random model of one or two layers, 32 wide, with a byte-level BPE vocabulary of the texts."""
    tokenizer = _tokenizer(kind, texts)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = _network(kind, tokenizer.get_vocab_size())
    names = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>"}
    with quiet_transformers():
        network.save_pretrained(folder)
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, **{f"{name}_token": token for name, token in names.items()}
        ).save_pretrained(folder)
    return folder


def _tokenizer(kind: Kind, texts: Iterable[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    template = "<s> $A </s>" if kind == "bart" else "$A </s>"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")]
    )
    return tokenizer


def _network(kind: Kind, vocabulary: int) -> Any:
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    if kind != "t5":
        layers = {f"{part}_{name}": value for part in ("encoder", "decoder") for name, value in
                  {"layers": 1, "attention_heads": 2, "ffn_dim": 64}.items()}  # fmt: skip
        sizes = {"vocab_size": vocabulary, "d_model": 32, "max_position_embeddings": 96, "decoder_start_token_id": 2}
        if kind == "bart":
            return BartForConditionalGeneration(BartConfig(**sizes, **layers, **ids))
        return M2M100ForConditionalGeneration(M2M100Config(**sizes, **layers, **ids))
    return T5ForConditionalGeneration(
        T5Config(vocab_size=vocabulary, d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2,
                 decoder_start_token_id=1, **ids)
    )  # fmt: skip
