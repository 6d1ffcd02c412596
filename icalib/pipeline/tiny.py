"""Tiny training and scoring jobs, whose time is dominated by start-up: the path of a run, in seconds."""

from __future__ import annotations

from pathlib import Path

from icalib.core.files import file_digest
from icalib.core.job import Artifact
from icalib.core.storage import location, push
from icalib.data.encoding import Budget, write_tokens
from icalib.data.schema import Pool, Utterance
from icalib.data.selection import Selection
from icalib.encoders.backbone import Tokenizer, quiet_transformers, save_quietly
from icalib.encoders.transformer import TransformerEncoder
from icalib.losses.binary import BinaryCrossEntropy
from icalib.models.checkpoint import RankerConfig
from icalib.parts.job import ColumnJob
from icalib.training.cross_encoder import CrossEncoderJob
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import MCDropout

_NUM_POOLS = 12
_BUDGET = Budget(max_context_tokens=48, max_candidate_tokens=16)


def tiny_jobs(folder: Path, num_workers: int) -> tuple[CrossEncoderJob, ColumnJob]:
    """Create training and scoring jobs with a tiny backbone and a few pools, which are written to `folder`.

    The scoring job expects the checkpoint of the training job in `folder`/training.
    """
    pools, backbone, tokens = _tiny_pools(), folder / "backbone", folder / "tokens.arrow"
    _write_tiny_bert(backbone, [text for pool in pools for text in (pool.context[0].text, *pool.candidates)])
    write_tokens(tokens, [pools], Tokenizer(str(backbone)), (), _BUDGET)
    push(folder)
    selection = Selection(labelled_fraction=0.5)
    known = Artifact(path=tokens, digest=file_digest(tokens))
    training = CrossEncoderJob(
        ranker=RankerConfig(encoder=TransformerEncoder.Config(backbone=location(backbone), budget=_BUDGET)),
        loss=BinaryCrossEntropy.Config(),
        training=TrainingSettings(epochs=1, batch_size=4 * num_workers, train_negatives=1),
        selection=selection,
        train_tokens=known,
        validation_tokens=known,
        seed=1,
    )
    scoring = ColumnJob(
        model=Artifact(path=folder / "training" / "checkpoint", digest=training.digest()),
        tokens=known,
        selection=selection,
        part="cross",
        split="train",
        of="unlabelled",
        estimator=MCDropout.Config(num_passes=2),
        precision="auto",
        max_tokens_per_batch=1024,
        pools_per_shard=_NUM_POOLS // 4,
        seed=1,
    )
    return training, scoring


def _tiny_pools() -> list[Pool]:
    return [
        Pool(
            pool_id=f"{number:02d}",
            dialog_id=f"{number:02d}",
            split="train",
            context=(Utterance(speaker="user", text=f"question {number} about a printer"),),
            candidates=tuple(f"answer {number + other} to it" for other in range(3)),
            label=number % 3,
            label_order=number,
        )
        for number in range(_NUM_POOLS)
    ]


def _write_tiny_bert(folder: Path, texts: list[str]) -> None:
    """Write a random BERT with one layer of width 16, whose vocabulary is the words of the texts."""
    from tokenizers import BertWordPieceTokenizer
    from tokenizers import Tokenizer as FastTokenizer
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    special = {f"{name.lower()}_token": f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP", "MASK")}
    words = sorted({word for text in texts for word in text.split()})
    vocabulary = {token: index for index, token in enumerate([*special.values(), *words])}
    tokenizer = FastTokenizer.from_str(BertWordPieceTokenizer(vocabulary).to_str())
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=128,
        pad_token_id=vocabulary["[PAD]"],
    )
    save_quietly(BertModel(config, add_pooling_layer=False), folder)
    with quiet_transformers():
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
