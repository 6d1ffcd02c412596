"""Tiny training and scoring jobs, whose time is dominated by start-up: the path of a run, in seconds."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from icalib.core.files import file_digest
from icalib.core.job import Artifact
from icalib.core.storage import location, push
from icalib.data.encoding import Budget, write_tokens
from icalib.data.pools import as_pools, iter_pools
from icalib.data.prepare import PrepareSettings, prepare
from icalib.data.schema import Pool
from icalib.data.selection import Selection
from icalib.data.simulate import simulate
from icalib.encoders.backbone import Tokenizer, quiet_transformers
from icalib.encoders.transformer import TransformerEncoder
from icalib.losses.binary import BinaryCrossEntropy
from icalib.models.checkpoint import RankerConfig
from icalib.parts.job import ColumnJob
from icalib.training.answers import TrainJob
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import MCDropout

_NUM_POOLS = 12
_BUDGET = Budget(max_context_tokens=48, max_candidate_tokens=16)


def tiny_jobs(folder: Path, num_workers: int) -> tuple[TrainJob, ColumnJob]:
    """Create training and scoring jobs with a tiny backbone and simulated pools, which are written to `folder`.

    The scoring job expects the checkpoint of the training job in `folder`/training.
    """
    pools, intents = _tiny_pools()
    backbone, tokens = folder / "backbone", folder / "tokens.arrow"
    _write_tiny_bert(backbone, [*(text for pool in pools for text in _texts(pool))])
    write_tokens(tokens, [pools], Tokenizer(str(backbone)), intents, _BUDGET)
    push(folder)
    selection = Selection(labelled_fraction=0.5)
    known = Artifact(path=tokens, digest=file_digest(tokens))
    training = TrainJob(
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


def _tiny_pools() -> tuple[list[Pool], tuple[str, ...]]:
    with TemporaryDirectory(prefix="icalib-") as temporary:
        source, data = Path(temporary) / "dialogues.jsonl", Path(temporary) / "pools"
        simulate(source, num_dialogues=20, seed=1)
        settings = PrepareSettings(num_candidates=3, negative_sampler="random", labelled=0.5)
        pool_set = prepare(source, data, settings)
        pools = [pool for batch in iter_pools(data, "train") for pool in as_pools(batch)]
    return pools[:_NUM_POOLS], pool_set.intents


def _texts(pool: Pool) -> list[str]:
    return [*(utterance.text for utterance in pool.context), *pool.candidates]


def _write_tiny_bert(folder: Path, texts: list[str]) -> None:
    """Write a random BERT with one layer of width 16, and a vocabulary from the texts."""
    from tokenizers import Tokenizer as FastTokenizer
    from tokenizers import models, normalizers, pre_tokenizers, processors, trainers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    tokenizer = FastTokenizer(models.WordPiece(unk_token=names["unk"]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=list(names.values()), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    ids = {name: index for index, name in enumerate(names)}  # the special tokens have the first ids
    tokenizer.post_processor = processors.BertProcessing((names["sep"], ids["sep"]), (names["cls"], ids["cls"]))
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=128,
        pad_token_id=ids["pad"],
    )
    special = {f"{name}_token": token for name, token in names.items()}
    with quiet_transformers():
        BertModel(config, add_pooling_layer=False).save_pretrained(folder)
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
