from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_models import ranker_config, tiny_dual_encoder

from icalib.data.encoding import TokenStore
from icalib.models.bi_encoder import BiEncoder
from icalib.models.checkpoint import read_weights
from icalib.models.ranker import Ranker, start_weights
from icalib.training.domain_pretraining.contrastive import Contrastive
from icalib.training.domain_pretraining.responses import Corpus
from icalib.training.settings import TrainingSettings

CPU = torch.device("cpu")


@pytest.fixture
def dual(tiny_bert: Path) -> BiEncoder:
    return tiny_dual_encoder(tiny_bert)


def settings(**changed: Any) -> Contrastive.Config:
    training = {"batch_size": 8, "precision": "fp32", "learning_rate": 1e-3, "max_grad_norm": None}
    training |= changed.pop("training", {})
    return Contrastive.Config(training=TrainingSettings(**training), **changed)  # type: ignore[arg-type]


def task(tokens: Path, dual: BiEncoder, config: Contrastive.Config) -> Contrastive:
    store = TokenStore(tokens / "train.arrow")
    return config.build(corpus=Corpus(store, range(len(store))), layout=dual.layout)


def test_the_loss_is_the_softmax_over_the_texts_of_the_batch(tokens: Path, dual: BiEncoder) -> None:
    made = task(tokens, dual, settings(temperature=0.1))
    dual.eval()
    batch = made.batches(0)[0]
    batch = [*batch, batch[0]]  # equal targets do not compete
    vectors = made.represent(dual, batch, CPU).detach().double()
    contexts, targets = vectors[:, 0], vectors[:, 1]
    torch.testing.assert_close(contexts.norm(dim=1), torch.ones(len(batch), dtype=torch.double))
    texts = [made._responses.target(example.response).tobytes() for example in batch]
    expected = 0.0
    for row, text in enumerate(texts):
        scores = (targets @ contexts[row]) / 0.1
        rivals = [scores[other] for other in range(len(batch)) if other == row or texts[other] != text]
        expected -= float(scores[row] - torch.logsumexp(torch.stack(rivals), 0))
    name, loss = made.losses(dual, batch, CPU)
    assert name == "contrastive"
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_it_starts_the_encoder_of_a_ranker(dual: BiEncoder, tiny_bert: Path, tmp_path: Path) -> None:
    dual.save(tmp_path, {name: tensor + 0.01 for name, tensor in dual.state_dict().items()})
    ranker = Ranker(ranker_config(tiny_bert, intents=("a", "b")))
    before = {name: tensor.clone() for name, tensor in ranker.state_dict().items()}
    start_weights(ranker, tmp_path)
    after = ranker.state_dict()
    for name, tensor in read_weights(tmp_path).items():
        own = name.removeprefix("dual_encoder.")
        assert torch.equal(after[f"encoder.{own}"][: len(tensor)], tensor)
    moved = {name for name in after if not torch.equal(before[name], after[name])}
    assert {name.split(".")[0] for name in moved} == {"encoder"}
