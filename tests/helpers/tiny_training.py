"""A method on a tiny backbone: trained for a few updates in this process, then asked for scores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import torch
from helpers.observers import Silent
from helpers.scoring import score_pools
from helpers.tiny_models import BUDGET
from torch import Tensor

from icalib.core.component import with_settings
from icalib.data.encoding import TokenStore
from icalib.methods.method import Method
from icalib.models.checkpoint import RankerConfig
from icalib.models.ranker import Ranker, start_weights
from icalib.scoring.cross import LoadedCross
from icalib.training.conditioning import Conditioning
from icalib.training.cross_encoder import answer_curriculum
from icalib.training.examples import gold_labels
from icalib.training.local_engine import LocalEngine
from icalib.training.loop import Curriculum, train
from icalib.training.pairs import AnswerCurriculum
from icalib.training.settings import TrainingSettings

CPU = torch.device("cpu")


@dataclass(frozen=True)
class TinyRun:
    """A trained ranker, its weights before training, its curriculum, the number of updates, and what it scored."""

    ranker: Ranker
    curriculum: Curriculum
    context: LoadedCross
    before: dict[str, Tensor]
    num_steps: int
    scores: pa.Table
    intents: pa.Table | None


def train_and_score(
    method: Method,
    backbone: Path,
    store: TokenStore,
    *,
    intents: tuple[str, ...] = (),
    rows: tuple[int, ...] = (3,),
    start: Path | None = None,
) -> TinyRun:
    """Train a method on two pools, two updates at least, and score other pools of the same split.

    Args:
        method: what to train; its training settings are replaced by quick ones.
        backbone: a tiny one.
        store: tokens of the training split, by the backbone's tokenizer.
        intents: the intent labels of the data; used by methods that learn intents.
        rows: the pools to score.
        start: a checkpoint of domain pre-training, whose weights are the initial ones.
    """
    method = with_settings(method, {"encoder.backbone": str(backbone), "encoder.budget": BUDGET})
    with_intents = method.regime.needs_intents()
    names = intents if with_intents else ()
    torch.manual_seed(0)
    parts = {"encoder": method.encoder, "head": method.head, "link": method.loss.link}
    ranker = Ranker(RankerConfig(**parts, intents=names))
    if start is not None:
        start_weights(ranker, start)
    before = {name: tensor.clone() for name, tensor in ranker.state_dict().items()}
    settings = TrainingSettings(epochs=2, learning_rate=1e-3, batch_size=4, precision="fp32", warmup_fraction=0)
    pools = gold_labels(store, [0, 1], with_intents=with_intents)
    curriculum = answer_curriculum(
        pools, store, ranker.layout, method.loss.build(), settings, num_intents=len(names), seed=0
    )  # fmt: skip
    state = train(ranker, LocalEngine(ranker, settings), curriculum, settings, Silent(), seed=0, validation=None)
    if method.head.has_posterior:
        assert isinstance(curriculum, AnswerCurriculum)
        Conditioning(curriculum, settings, CPU, 0).complete(ranker)
    context = LoadedCross(ranker, method.uncertainty.build(), CPU, "fp32", method.scoring.max_tokens_per_batch)
    views = method.regime.view_rule() is not None
    scores, chosen = score_pools(context, store, rows, with_intents=views, seed=0)
    return TinyRun(ranker, curriculum, context, before, state.step, scores, chosen)
