"""Tiny random backbones and a tiny prepared corpus: what tests use where users have BERT and their dialogues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, RobertaConfig, RobertaModel

from icalib.data.encoding import Budget, Ids, TokenStore, write_tokens
from icalib.data.pools import as_pools, iter_pools, read_pool_set
from icalib.data.prepare import PrepareSettings, prepare
from icalib.data.schema import Split
from icalib.data.simulate import simulate
from icalib.encoders import backbone
from icalib.encoders.transformer import Batch, TransformerEncoder
from icalib.models.bi_encoder import BiEncoder
from icalib.models.checkpoint import RankerConfig
from icalib.models.ranker import Ranker

SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
}
BUDGET = Budget(max_context_tokens=48, max_candidate_tokens=16)


def write_tiny_bert(folder: Path, texts: Iterable[str], **shape: int) -> Path:
    """A random BERT with a WordPiece vocabulary of the texts and 128 positions; `shape` goes before SHAPE."""
    tokenizer, names = word_pieces(texts)
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=128, pad_token_id=0, **{**SHAPE, **shape}
    )
    return write_backbone(folder, lambda: BertModel(config, add_pooling_layer=False), tokenizer, names)


def word_pieces(texts: Iterable[str]) -> tuple[Tokenizer, dict[str, str]]:
    """BERT's kind of tokenizer, and its special tokens."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    normalizer, pre_tokenizer = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    words = Counter(
        word for text in texts for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(text))
    )
    tokenizer = Tokenizer(models.WordPiece(_vocabulary(words, special, size=600), unk_token="[UNK]"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.post_processor = processors.BertProcessing(
        ("[SEP]", tokenizer.token_to_id("[SEP]")), ("[CLS]", tokenizer.token_to_id("[CLS]"))
    )
    return tokenizer, dict(zip(("pad", "unk", "cls", "sep", "mask"), special, strict=True))


def _vocabulary(words: Counter[str], special: Sequence[str], size: int) -> dict[str, int]:
    """Characters and the most frequent words; `WordPieceTrainer` breaks ties at random, so its tokens differ."""
    letters = sorted({letter for word in words for letter in word})
    frequent = sorted((word for word in words if len(word) > 1), key=lambda word: (-words[word], word))
    tokens = [*special, *letters, *(f"##{letter}" for letter in letters), *frequent]
    return {token: index for index, token in enumerate(tokens[:size])}


def write_tiny_roberta(folder: Path, texts: Iterable[str]) -> Path:
    """A random RoBERTa with a byte-level BPE vocabulary of the texts and 128 positions for tokens."""
    tokenizer, names = byte_pairs(texts)
    config = RobertaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        max_position_embeddings=130,
        type_vocab_size=1,
        pad_token_id=tokenizer.token_to_id("<pad>"),
        **SHAPE,
    )
    return write_backbone(folder, lambda: RobertaModel(config, add_pooling_layer=False), tokenizer, names)


def byte_pairs(texts: Iterable[str]) -> tuple[Tokenizer, dict[str, str]]:
    """RoBERTa's kind of tokenizer, and its special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=special,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", tokenizer.token_to_id("</s>")), ("<s>", tokenizer.token_to_id("<s>"))
    )
    return tokenizer, {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}


def write_backbone(folder: Path, make: Callable[[], Any], tokenizer: Tokenizer, names: Mapping[str, str]) -> Path:
    """The model that `make` gives after seeding, and its tokenizer."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = make()
    with backbone.quiet_transformers():
        network.save_pretrained(folder)
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, **{f"{name}_token": token for name, token in names.items()}
        ).save_pretrained(folder)
    return folder


def write_tiny_pools(folder: Path) -> Path:
    """A simulated corpus of 40 dialogues, prepared in this process: pools of 4 candidates."""
    simulate(folder / "dialogues.jsonl", num_dialogues=40, seed=1)
    prepare(folder / "dialogues.jsonl", folder / "pools", PrepareSettings(num_candidates=4, labelled=0.25))
    return folder / "pools"


def pool_texts(pools: Path) -> list[str]:
    """Every utterance and candidate of the training pools."""
    return [
        text
        for batch in iter_pools(pools, "train")
        for pool in as_pools(batch)
        for text in (*(utterance.text for utterance in pool.context), *pool.candidates)
    ]


def token_store(pools: Path, split: Split, name: Path, folder: Path, budget: Budget = BUDGET) -> TokenStore:
    """The tokens of a split, by a backbone's tokenizer."""
    path = folder / f"{split}.arrow"
    batches = (list(as_pools(batch)) for batch in iter_pools(pools, split))
    write_tokens(path, list(batches), backbone.Tokenizer(str(name)), read_pool_set(pools).intents, budget)
    return TokenStore(path)


def ranker_config(name: Path, *, intents: tuple[str, ...] = (), **encoder: object) -> RankerConfig:
    """A ranker on a tiny backbone."""
    settings = {"backbone": str(name), "budget": BUDGET, **encoder}
    return RankerConfig(encoder=TransformerEncoder.Config.model_validate(settings), intents=intents)


def tiny_ranker(name: Path, *, seed: int = 0, intents: tuple[str, ...] = (), **encoder: object) -> Ranker:
    """A seeded ranker on a tiny backbone, in eval mode."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Ranker(ranker_config(name, intents=intents, **encoder)).eval()


def sharpened(ranker: Ranker, factor: float = 6) -> Ranker:
    """Make logits differ by some units between texts, as those of trained rankers do."""
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(1)
        for parameter in ranker.parameters():
            if parameter.ndim > 1:
                parameter.mul_(factor)
        ranker.answer_head.linear.weight.normal_()
    return ranker


def random_batch(ranker: Ranker, *, num_pairs: int = 8, seed: int = 0) -> Batch:
    """Pairs of random tokens, of different lengths."""
    layout, generator = ranker.layout, torch.Generator().manual_seed(seed)

    def ids(most: int) -> Ids:
        length = int(torch.randint(1, most + 1, (1,), generator=generator))
        return torch.randint(ranker.encoder.vocabulary, (length,), generator=generator).to(torch.int32).numpy()

    limits = layout.limits
    pairs = [layout.pair(ids(limits.max_context_tokens), ids(limits.max_candidate_tokens)) for _ in range(num_pairs)]
    return Batch.of(pairs, layout.padding)


def attention_mask(batch: Batch) -> torch.Tensor:
    """1 for tokens and 0 for padding; [B, L]."""
    return (torch.arange(batch.ids_BL.shape[1]) < batch.lengths_B[:, None]).long()


def tiny_dual_encoder(name: Path, *, dropout: bool = True) -> BiEncoder:
    """A seeded dual encoder on a tiny backbone."""
    torch.manual_seed(0)
    dual = BiEncoder(str(name), BUDGET)
    for module in dual.modules():
        if hasattr(module, "p") and not dropout:
            module.p = 0.0  # type: ignore[assignment]
    return dual
