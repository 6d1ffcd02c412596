"""A training step and a scored shard of a tiny ranker: the whole path of a run, in seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq

from icalib.core.check import Check
from icalib.core.errors import IcalibError
from icalib.core.files import read_json
from icalib.core.storage import local_path, location, pull, push
from icalib.data.encoding import Budget, write_tokens
from icalib.data.pools import as_pools, iter_pools
from icalib.data.prepare import PrepareSettings, prepare
from icalib.data.schema import Pool
from icalib.data.selection import Selection
from icalib.data.simulate import simulate
from icalib.distributed.scoring import score
from icalib.distributed.session import Resources, room_for_workers
from icalib.distributed.training import train
from icalib.scoring.job import ScoreJob, shard_path, shard_rows
from icalib.training.job import TrainJob

_STEP, _SHARD = "training step", "scored shard"
_PATIENCE_S = 300.0
_NUM_POOLS = 12
_BUDGET = Budget(max_context_tokens=48, max_candidate_tokens=16)


def check_workers(resources: Resources) -> Check:
    """Whether so many training workers fit, and find room now."""
    import ray

    wanted, kind = resources.num_workers, "GPU" if resources.use_gpu else "CPU"
    room = room_for_workers(resources)
    if room < wanted:
        return Check(
            "workers",
            "fail",
            f"{wanted} training workers are asked for, and the nodes have room for {room}",
            f"Add nodes, or give --workers {room}." if room else f"Add nodes with {kind}s.",
        )
    idle = int(ray.available_resources().get(kind, 0))
    if idle < wanted:
        return Check(
            "workers",
            "warn",
            f"{wanted} training workers fit, but only {idle} {kind}s are idle now",
            "Wait for the jobs that hold them (`icalib jobs`), or stop them, then look again.",
        )
    return Check("workers", "ok", f"{wanted} fit, one {kind} each; room for {room}")


def check_training(job: TrainJob, folder: Path, resources: Resources) -> Check:
    """Some updates by Ray Train and DeepSpeed, checkpoints through the storage."""
    fault = _fault_of(lambda: train(job, folder, resources))
    if fault:
        return Check(
            _STEP,
            "fail",
            fault,
            "Where it says nothing better: the workers must reach each other on any port (firewalls, security groups); "
            "with several network cards set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME on the nodes.",
        )
    facts = read_json(folder / "result.json")
    return Check(_STEP, "ok", f"{facts['updates']} updates by {facts['world_size']} workers ({facts['device']})")


def check_scoring(job: ScoreJob, folder: Path, resources: Resources) -> Check:
    """Two shards, each by a Ray task."""
    fault = _fault_of(lambda: score(job, folder, resources, lambda _done, _total, _note: None))
    if fault:
        return Check(_SHARD, "fail", fault, "See the message; what the task has printed is in the node's Ray log.")
    number = len(shard_rows(job))
    pairs = sum(pq.read_metadata(shard_path(folder, place)).num_rows for place in range(number))
    return Check(_SHARD, "ok", f"{number} shards, {pairs} pairs")


def _fault_of(act: Callable[[], None]) -> str:
    """What went wrong, in one line; empty if nothing did."""
    faults = [f"not done within {_PATIENCE_S:.0f} s"]

    def attempt() -> None:
        try:
            act()
            faults.clear()
        except (IcalibError, OSError) as error:
            faults[:] = [" ".join(str(error).split())]
        except Exception as error:  # whatever is broken on a machine, this is where it is to be told
            faults[:] = [" ".join(f"{type(error).__name__}: {error}".split())]

    thread = threading.Thread(target=attempt, daemon=True)  # workers that wait for each other wait for half an hour
    thread.start()
    thread.join(_PATIENCE_S)
    return "".join(faults)


def tiny_jobs(folder: Path, num_workers: int) -> tuple[TrainJob, ScoreJob]:
    """Jobs over a tiny backbone and simulated pools, all of which goes to `folder`.

    The score job's checkpoint is that of a training in `folder`/training.
    """
    from icalib.encoders.backbone import Tokenizer
    from icalib.encoders.transformer import TransformerEncoder
    from icalib.losses.binary import BinaryCrossEntropy
    from icalib.models.config import RankerConfig
    from icalib.training.settings import TrainingSettings
    from icalib.uncertainty.estimator import MCDropout

    pools, intents = _tiny_pools()
    backbone, tokens = folder / "backbone", folder / "tokens.arrow"
    _write_tiny_bert(backbone, [*(text for pool in pools for text in _texts(pool))])
    write_tokens(tokens, [pools], Tokenizer(str(backbone)), intents, _BUDGET)
    push(folder)
    selection = Selection(labelled_fraction=0.5)
    training = TrainJob(
        kind="answers",
        ranker=RankerConfig(encoder=TransformerEncoder.Config(backbone=location(backbone), budget=_BUDGET)),
        loss=BinaryCrossEntropy.Config(),
        training=TrainingSettings(epochs=1, batch_size=4 * num_workers, train_negatives=1),
        selection=selection,
        train_tokens=tokens,
        validation_tokens=tokens,
        seed=1,
    )
    scoring = ScoreJob(
        checkpoint=folder / "training" / "checkpoint",
        tokens=tokens,
        selection=selection,
        split="train",
        part="unlabelled",
        estimator=MCDropout.Config(num_passes=2),
        with_intents=False,
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
    """A random BERT of one layer, 16 wide, whose vocabulary is the words of the texts."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    from icalib.distributed.engine import load_deepspeed
    from icalib.encoders.backbone import quiet_transformers

    load_deepspeed()  # transformers imports it to save a model, and it would have much to say
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    tokenizer = Tokenizer(models.WordPiece(unk_token=names["unk"]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=list(names.values()), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    ids = {name: place for place, name in enumerate(names)}  # the special tokens come first
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


def fetch(place: str) -> None:
    """Bring what `tiny_jobs` has written to this node, where it lies in an object store."""
    pull(local_path(place))
