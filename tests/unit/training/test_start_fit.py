"""What a training job fits slope and offset of its initial logits to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.artifacts import known
from helpers.tiny_models import BUDGET, pool_texts, ranker_config, tiny_dual_encoder
from helpers.train_jobs import answer_job

from icalib.core.job import Artifact
from icalib.data.encoding import write_tokens
from icalib.data.schema import Pool, Split
from icalib.data.selection import Selection
from icalib.encoders.backbone import Tokenizer
from icalib.heads.head import AbstractHead, Support
from icalib.heads.polya_gamma import PolyaGammaHead
from icalib.heads.random_features import RandomFeatureHead
from icalib.models.dual_encoder import DualEncoder
from icalib.models.ranker import Ranker
from icalib.training.answers import TrainJob
from icalib.uncertainty.estimator import Deterministic, Posterior

CPU = torch.device("cpu")
SPLITS: tuple[Split, ...] = ("train", "validation")


@pytest.fixture(scope="module")
def texts(tiny_pools: Path) -> list[str]:
    return sorted(set(pool_texts(tiny_pools)))


def pool(texts: list[str], number: int, split: Split, *, echo_is_right: bool) -> Pool:
    """A pool of three candidates, one of which repeats its context."""
    context, *others = (texts[(number * 3 + step) % len(texts)] for step in range(3))
    return Pool.model_validate(
        {
            "pool_id": f"{split}-{number}", "dialog_id": f"{split}-{number}", "split": split,
            "context": [{"speaker": "user", "text": context}], "candidates": [context, *others],
            "label": 0 if echo_is_right else 1, "label_order": number if split == "train" else -1,
        }
    )  # fmt: skip


def write(folder: Path, backbone: Path, texts: list[str], number: int, echo_is_right: Callable[[int], bool]) -> Path:
    """Write tokens of training and of validation pools; return the folder."""
    for split in SPLITS:
        pools = [pool(texts, row, split, echo_is_right=echo_is_right(row)) for row in range(number)]
        write_tokens(folder / f"{split}.arrow", [pools], Tokenizer(str(backbone)), (), BUDGET)
    return folder


def job(tokens: Path, backbone: Path, head: AbstractHead.Config | None = None, **changes: Any) -> TrainJob:
    parts = {"similarity_start": changes.pop("similarity_start", "separate"), **({"head": head} if head else {})}
    ranker = ranker_config(backbone).model_copy(update=parts)
    return answer_job(tokens, ranker, selection=Selection(labelled_fraction=1.0), **changes)


def start(made: TrainJob) -> tuple[float, float]:
    """Slope and offset before the first update."""
    ranker = made.prepare(CPU).model
    assert isinstance(ranker, Ranker)
    assert ranker.similarity_start is not None
    return ranker.similarity_start.slope.item(), ranker.similarity_start.offset.item()


@pytest.fixture(scope="module")
def bi_encoder(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("bi-encoder")
    dual = tiny_dual_encoder(tiny_bert)
    dual.save(folder, dual.state_dict())
    return known(folder)


def test_slope_and_offset_are_fitted_to_pools_of_the_whole_file(
    texts: list[str], tiny_bert: Path, bi_encoder: Artifact, tmp_path: Path
) -> None:
    """In the first half of the file the candidate that repeats its context is right, in the second it is wrong."""
    tokens = write(tmp_path, tiny_bert, texts, 120, lambda row: row < 60)
    for changes in ({}, {"bi_encoder": bi_encoder}):
        slope, offset = start(job(tokens, tiny_bert, **changes))
        assert slope < 50  # 457 from the first half alone
        assert start(job(tokens, tiny_bert, **changes)) == (slope, offset)


@pytest.fixture(scope="module")
def mixed(texts: list[str], tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tokens of pools in three quarters of which the candidate that repeats its context is right."""
    return write(tmp_path_factory.mktemp("mixed"), tiny_bert, texts, 60, lambda row: row % 4 > 0)


def teacher(backbone: Path, folder: Path) -> Artifact:
    """A ranker whose cross-encoder adds something to the logit of its bi-encoder, whose slope is 5."""
    torch.manual_seed(0)
    ranker = Ranker(ranker_config(backbone).model_copy(update={"similarity_start": "separate"}))
    torch.nn.init.normal_(ranker.answer_head.linear.weight, std=0.1)
    ranker.save(folder, ranker.state_dict())
    return known(folder)


def other(bi_encoder: Artifact, folder: Path) -> Artifact:
    """A bi-encoder whose weights have moved."""
    dual = DualEncoder.load(bi_encoder.path)
    torch.manual_seed(1)
    state = {name: tensor + 0.05 * torch.randn(tensor.shape) for name, tensor in dual.state_dict().items()}
    dual.save(folder, state)
    return known(folder)


def test_a_new_bi_encoder_beside_a_trained_head_gets_a_new_slope(
    mixed: Path, tiny_bert: Path, bi_encoder: Artifact, tmp_path: Path
) -> None:
    made = job(
        mixed, tiny_bert, start=teacher(tiny_bert, tmp_path / "teacher"),
        bi_encoder=other(bi_encoder, tmp_path / "other"),
    ).prepare(CPU)  # fmt: skip
    ranker, judge = made.model.eval(), made.validation
    assert isinstance(ranker, Ranker)
    assert judge is not None
    fitted = ranker.similarity_start
    assert fitted is not None
    slope, offset = fitted.slope.item(), fitted.offset.item()

    def nll(factor: float, shift: float) -> float:
        with torch.no_grad():
            fitted.slope.fill_(slope * factor)
            fitted.offset.fill_(offset + slope * (1 - factor) + shift)  # the same logit at cosine 1
        return judge.metrics([judge(ranker, 0, 1)])["cal/NLL"]

    best = nll(1.0, 0.0)
    for factor in (0.6, 1.5):
        assert min(nll(factor, shift) for shift in (-0.4, 0.0, 0.4)) > best - 1e-3


FEW_FEATURES = RandomFeatureHead.Config(num_features=64, length_scale=0.003, ridge=0.03)  # variances of about 3
FEW_CHAINS = PolyaGammaHead.Config(num_chains=8, num_steps=2, prediction_steps=5, support=Support(size=16))


@pytest.mark.parametrize(
    ("head", "similarity", "gain"),
    [(FEW_FEATURES, "separate", 2e-3), (FEW_CHAINS, "separate", 0.0), (FEW_CHAINS, "together", 0.0)],
)
def test_the_start_is_fitted_to_the_probabilities_that_a_posterior_predicts(
    mixed: Path, tiny_bert: Path, head: AbstractHead.Config, similarity: str, gain: float
) -> None:
    """A Gaussian process with labels takes back most of another offset; then the fit may change nothing."""
    losses = []
    for estimator in (Deterministic.Config(), Posterior.Config()):
        made = job(mixed, tiny_bert, head, similarity_start=similarity, estimator=estimator).prepare(CPU)
        assert made.validation is not None
        losses.append(made.validation.metrics([made.validation(made.model.eval(), 0, 1)])["cal/NLL"])
    assert losses[1] <= losses[0] - gain


def test_a_student_with_the_bi_encoder_of_its_teacher_keeps_its_logits(
    mixed: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    kept = teacher(tiny_bert, tmp_path / "teacher")
    (tmp_path / "pseudo").mkdir()
    student = job(mixed, tiny_bert, start=kept, bi_encoder=kept, pseudo_labels=known(tmp_path / "pseudo"))
    assert start(student) == (5.0, -3.0)
