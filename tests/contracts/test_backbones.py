"""What every family of backbones must do: load, train, resume, score with dropout, and be exported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.artifacts import known
from helpers.observers import DyingEngine, Interrupted, Silent
from helpers.scoring import score_pools
from helpers.tiny_families import FAMILIES, Family, write_family
from helpers.tiny_models import BUDGET, attention_mask, pool_texts, random_batch, sharpened, tiny_ranker, token_store
from helpers.train_jobs import answer_job
from torch import Tensor, nn
from transformers import FNetConfig, GPT2Config, IBertConfig, PretrainedConfig

from icalib.calibration.fitted import AffineMap
from icalib.core.errors import ExportError, SettingError
from icalib.data.encoding import TokenStore
from icalib.data.questions import unlabelled_pool
from icalib.data.schema import Utterance
from icalib.data.selection import Selection
from icalib.encoders.backbone import Tokenizer
from icalib.encoders.spectral_norm import SpectralLinear
from icalib.encoders.transformer import Batch, TransformerEncoder
from icalib.exports.agreement import Agreement, ranker_scorer
from icalib.exports.onnx import write_onnx
from icalib.exports.stock import classifier_of, write_cross_encoder, write_sentence_transformer
from icalib.exports.subject import IDENTITY, Subject
from icalib.exports.texts import stock_tokenizer, texts_of
from icalib.models.bi_encoder import layout_of, load_bi_encoder
from icalib.models.checkpoint import RankerConfig
from icalib.models.precision import Precision
from icalib.models.ranker import Ranker, load_ranker, make_batch
from icalib.parts.similarity import Similarity, SimilarityJob
from icalib.scoring.cross import LoadedCross
from icalib.training.job import TrainingJob
from icalib.training.local_engine import LocalEngine
from icalib.training.loop import train
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import MCDropout

CPU = torch.device("cpu")
NOT_RECOMPUTED = ("albert", "mpnet")
"""Families whose layers transformers can't compute again in the backward pass."""
TURNS = [Utterance(speaker="user", text=text) for text in ("My printer hums", "which one?", "restart it")]
SMALL: dict[str, Any] = {"batch_size": 4, "epochs": 1, "checkpoint_every": 1}
POOLS = [unlabelled_pool("", TURNS[:1], ["ok", "restart it " * 40]), unlabelled_pool("", TURNS, ["yes"])]


class Made:
    """A family's tiny backbone, and the tokens of the training pools by its tokenizer."""

    def __init__(self, name: str, pools: Path, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.path = write_family(folder / "backbone", name, pool_texts(pools))
        self.store: TokenStore = token_store(pools, "train", self.path, folder)

    @property
    def family(self) -> Family:
        return FAMILIES[self.name]

    def encoder(self, **settings: Any) -> TransformerEncoder.Config:
        return TransformerEncoder.Config.model_validate({"backbone": str(self.path), "budget": BUDGET, **settings})


@pytest.fixture(scope="module", params=FAMILIES)
def made(request: pytest.FixtureRequest, tiny_pools: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(request.param, tiny_pools, tmp_path_factory.mktemp(request.param))


def logits(ranker: Ranker, batch: Batch) -> Tensor:
    torch.manual_seed(2)
    with torch.inference_mode():
        return ranker.answer_logits(batch)


def test_it_reads_texts_up_to_its_own_length_and_padding_changes_nothing(made: Made) -> None:
    ranker = sharpened(tiny_ranker(made.path, intents=("ask", "thank")))
    assert (ranker.encoder.max_length, ranker.encoder.has_segments) == (128, made.family.has_segments)
    long = ranker.layout.pair(*(torch.arange(n, dtype=torch.int32).numpy() % 90 + 5 for n in (108, 16)))[0]
    pairs = [*(random_batch(ranker).inputs or ()), (long[: 128 - 2], 100), ranker.layout.pair(long[:3], long[:1])]
    together = logits(ranker, make_batch(pairs, ranker.layout, CPU))
    alone = torch.cat([logits(ranker, make_batch([pair], ranker.layout, CPU)) for pair in pairs])
    assert together.std() > 0.1
    torch.testing.assert_close(together, alone, atol=2e-5, rtol=1e-4)
    whole = Batch(torch.full((1, 128), 50), torch.zeros(1, 128, dtype=torch.long), torch.tensor([128]))
    assert torch.isfinite(logits(ranker, whole)).all()


@pytest.mark.parametrize("cheap", [True, False])
def test_all_its_dropout_is_set_and_drawn(made: Made, cheap: bool) -> None:
    """Of a rate that rounds to 0, our own kernels compute what the pass without dropout does."""
    for p in (0.2, 0.0, 2**-20 if cheap else 0.0):
        ranker = sharpened(tiny_ranker(made.path, dropout=p, cheap_dropout=cheap))
        batch = random_batch(ranker)
        expected, found = logits(ranker, batch), logits(ranker.train(), batch)
        if p > 0.1:
            assert ((found - expected).abs() > 1e-4).all()
        else:
            torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)


class Best(Silent):
    """Keeps the best weights."""

    def best(self, weights: dict[str, Tensor]) -> None:
        self.weights = weights


def trained(job: TrainingJob, folder: Path | None = None, engine: type[LocalEngine] = LocalEngine) -> dict[str, Tensor]:
    training, best = job.prepare(CPU), Best()
    made = engine(training.model, job.loop_settings, folder=folder)
    train(training.model, made, training.curriculum, job.loop_settings, best, seed=job.loop_seed, validation=None)
    if folder is not None:
        training.model.save(folder, best.weights)
    return best.weights


def cross_encoder_job(made: Made, *, precision: Precision = "fp32", **training: Any) -> TrainingJob:
    ranker = RankerConfig(encoder=made.encoder(dropout=0.1), intents=("ask", "thank"))
    some = {
        "selection": Selection(labelled_fraction=1.0, limit={"train": 6}),
        "validation_tokens": known(made.store.path),
    }
    return answer_job(made.folder, ranker, training=TrainingSettings(**SMALL, precision=precision, **training), **some)


def test_a_cross_encoder_trains_resumes_and_scores_with_dropout(made: Made, tmp_path: Path) -> None:
    job = cross_encoder_job(made)
    undisturbed = trained(job)
    with pytest.raises(Interrupted):
        trained(job, tmp_path, DyingEngine)
    resumed = trained(job, tmp_path)
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in undisturbed.items())
    assert all(tensor.isfinite().all() for tensor in trained(cross_encoder_job(made, precision="bf16")).values())
    start = job.prepare(CPU).model.state_dict()
    frozen = [name for name, tensor in start.items() if tensor.ndim > 1 and torch.equal(tensor, resumed[name])]
    assert [name for name in frozen if not name.startswith("intent_head")] == []
    ranker = load_ranker(tmp_path).eval()
    estimator = MCDropout.Config(num_passes=3).build()
    for precision in ("fp32", "bf16"):
        context = LoadedCross(ranker, estimator, CPU, precision, 2048)
        table, _ = score_pools(context, made.store, range(2), with_intents=False, seed=1)
        assert (table["logit_var"].to_numpy() > 0).all()


def test_layers_that_are_computed_again_give_the_same_weights(made: Made) -> None:
    job = cross_encoder_job(made, gradient_checkpointing=True)
    if made.name in NOT_RECOMPUTED:
        with pytest.raises(SettingError, match=r"transformers can't do it in .*Set it to false"):
            job.prepare(CPU)
        return
    found = trained(job)
    expected = trained(cross_encoder_job(made))
    assert all(torch.equal(tensor, found[name]) for name, tensor in expected.items())


def test_a_bi_encoder_trains_and_a_stock_one_gives_its_cosines(made: Made, tmp_path: Path) -> None:
    job = SimilarityJob(
        backbone=str(made.path),
        budget=BUDGET,
        settings=Similarity(training=TrainingSettings(**SMALL, precision="fp32", selection_metric="MAP")),  # type: ignore[arg-type]
        selection=Selection(labelled_fraction=1.0, limit={"train": 6}),
        train_tokens=known(made.store.path),
        validation_tokens=known(made.store.path),
        seed=1,
    )
    trained(job, tmp_path / "trained")
    model = load_bi_encoder(tmp_path / "trained", "fp32", CPU)
    model.layout = layout_of(made.encoder(turn_separators=made.family.separates_turns), model.encoder)
    subject = Subject(run=None, model=model, calibration=IDENTITY, calibrator="", scores={})  # type: ignore[arg-type]
    assert_same(exported(made, subject, write_sentence_transformer, tmp_path, of_pairs=False))


def exported(made: Made, subject: Any, write: Any, folder: Path, *, of_pairs: bool = True) -> Agreement:
    return written(made, subject, write, folder, of_pairs=of_pairs).agreement(POOLS)


def written(made: Made, subject: Any, write: Any, folder: Path, *, of_pairs: bool = True) -> Any:
    (folder / "export").mkdir()
    segments, its = subject.model.encoder.has_segments, subject.model.layout
    tokenizer = stock_tokenizer(str(made.path), its, has_segments=segments, of_pairs=of_pairs)
    texts = texts_of(its, Tokenizer(str(made.path)), tokenizer, 3)
    return write(subject, folder / "export", tokenizer, texts)


def assert_same(agreement: Agreement) -> None:
    assert (agreement.num_same_tokens, agreement.num_same_best) == (3, 2)


def cross_encoder(made: Made) -> Subject[Ranker]:
    ranker = sharpened(tiny_ranker(made.path, turn_separators=made.family.separates_turns, num_layers=1))
    calibration = AffineMap(slope=1.7, offset=-0.4)
    return Subject(run=None, model=ranker, calibration=calibration, calibrator="", scores={})  # type: ignore[arg-type]


def test_a_stock_classifier_gives_its_logits(made: Made, tmp_path: Path) -> None:
    subject = cross_encoder(made)
    assert_same(exported(made, subject, write_cross_encoder, tmp_path))
    batch = random_batch(subject.model)
    inputs = {"input_ids": batch.ids_BL, "attention_mask": attention_mask(batch)}
    if made.family.has_segments:
        inputs["token_type_ids"] = batch.segments_BL
    with torch.inference_mode():
        found = classifier_of(subject.model, AffineMap(slope=200.0, offset=0.0))(**inputs).logits[:, 0]
    torch.testing.assert_close(found / 200, logits(subject.model, batch), atol=1e-4, rtol=1e-4)


@pytest.mark.nightly  # that of one family is in tests/pipeline/test_export.py
def test_a_graph_gives_its_logits(made: Made, tmp_path: Path) -> None:
    for package in ("onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    subject = cross_encoder(made)
    comparison = written(made, subject, write_onnx, tmp_path)
    assert_same(comparison.agreement(POOLS))
    wrong = replace(subject, calibration=AffineMap(slope=0.1, offset=0.0))
    with pytest.raises(ExportError, match="outputs differ from those of the run's"):
        comparison._replace(expected=ranker_scorer(wrong)).agreement(POOLS)


def test_wider_scopes_bound_more_of_its_linear_layers(made: Made) -> None:
    def bounded(scope: str) -> set[str]:
        modules = tiny_ranker(made.path, spectral_norm={"scope": scope}).encoder.backbone.named_modules()
        return {name for name, module in modules if isinstance(module, SpectralLinear)}

    ffn, output, everything = (bounded(scope) for scope in ("ffn", "ffn+attention_output", "all_linear"))
    assert ffn < output < everything
    assert not any("att" in name for name in ffn)
    depth = len({name.rpartition("att")[0] for name in output - ffn})
    assert len(output - ffn) == depth
    plain = tiny_ranker(made.path).encoder.backbone.named_modules()
    linear = {name for name, module in plain if isinstance(module, nn.Linear) and "layer" in name}
    assert everything == linear


def test_it_predicts_masked_words(made: Made) -> None:
    ranker = Ranker(RankerConfig(encoder=made.encoder()), masked_words=True, task_heads={"next": 2})
    batch, positions_N2 = random_batch(ranker), torch.tensor([[0, 1], [3, 2]])
    _, found = ranker("classify", batch, head="next", positions_N2=positions_N2)
    assert isinstance(found, Tensor)
    assert found.shape == (2, ranker.encoder.vocabulary)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (GPT2Config(), "family `gpt2`, which is no encoder"),
        (FNetConfig(), "family `fnet`, which reads padding"),
        (IBertConfig(), "family `ibert`, which has an interface of its own"),
    ],
)
def test_what_is_no_encoder_or_reads_padding_is_refused(config: PretrainedConfig, words: str, tmp_path: Path) -> None:
    config.save_pretrained(tmp_path)
    with pytest.raises(SettingError, match=words):
        TransformerEncoder.Config(backbone=str(tmp_path)).build(num_intents=0)
