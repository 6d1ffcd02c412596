"""Every job's digest follows every field that can change its result, and no other."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from helpers.artifacts import known
from helpers.discovery import import_all
from helpers.score_jobs import score_job
from helpers.tiny_models import BUDGET, ranker_config
from helpers.train_jobs import job_of
from pydantic import BaseModel, create_model
from pydantic.fields import FieldInfo

from icalib.core.component import ComponentConfig, components
from icalib.core.job import NOT_IN_DIGEST, Artifact, ByContent, Job, LocalJob, ShardedJob, read_job
from icalib.data.folds import Fold
from icalib.data.selection import Selection
from icalib.encoders.iart import IART
from icalib.encoders.transformer import TransformerEncoder
from icalib.exports.distil import TargetJob
from icalib.generation.job import GenerateJob, TokenizeTextsJob
from icalib.generation.language_model import GeneratorJob, LanguageModel
from icalib.generation.retrieval import Retrieval
from icalib.losses.binary import BinaryCrossEntropy
from icalib.parts.fit import FitJob, OffsetJob
from icalib.parts.intent import Intent, IntentJob
from icalib.parts.intent_encoder import IntentEncoderJob
from icalib.parts.similarity import Similarity, SimilarityJob
from icalib.parts.sum import SumJob
from icalib.pipeline.score_pairs import PairFile, ScorePairsJob
from icalib.regimes.pseudo_labelling import PseudoLabelJob, RepeatJob
from icalib.regimes.pseudo_labels import PseudoLabelRule
from icalib.scoring.untrained import BiEncoderScoreJob, ExternalScoreJob, WordScoreJob
from icalib.stages.tokens import TokenizeJob, TokenizeLogsJob
from icalib.training.cross_encoder import CrossEncoderJob
from icalib.training.distillation import DistilJob
from icalib.training.domain_pretraining.contrastive import Contrastive
from icalib.training.domain_pretraining.job import ContrastiveJob, DomainPretrainJob
from icalib.training.domain_pretraining.utterance_order import UtteranceOrder
from icalib.training.job import TrainingJob
from icalib.training.pretraining.intent_classifier import IntentClassifierJob, IntentLearning
from icalib.training.pretraining.word_vectors import WordVectorJob, WordVectors
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import MCDropout

ABSTRACT = {Job, LocalJob, ShardedJob, TrainingJob}
SELECTION = Selection(labelled_fraction=0.1, limit={"train": 100})


def examples(backbone: Path) -> dict[type[Job], Job]:
    """A job of every class; a new class of jobs needs one here."""
    data, tokens, name = known(Path("pools")), known(Path("train.arrow")), str(backbone)
    of_data: dict[str, Any] = {"data": data, "selection": SELECTION}

    def made(kind: type[Job], **fields: Any) -> Job:
        common = {"selection": SELECTION, "training": TrainingSettings(), "num_intents": 2, "precision": "fp32"}
        given = {name: value for name, value in common.items() if name in kind.model_fields}
        return job_of(kind, backbone, Path("tokens"), **given | fields)

    pairs = PairFile(path=Path("p"), name="p", size=1, modified_ns=1, num_rows=3)
    ranker, columns = ranker_config(backbone), {"similarity": data, "cross": tokens}
    found: list[Job] = [
        made(CrossEncoderJob, ranker=ranker, loss=BinaryCrossEntropy.Config()),
        ScorePairsJob(run=data, files=(pairs,), rows_per_shard=2),
        made(DomainPretrainJob, ranker=ranker, task=UtteranceOrder.Config()),
        made(ContrastiveJob, task=Contrastive.Config()),
        made(SimilarityJob, settings=Similarity()),
        made(IntentJob, settings=Intent()),
        made(IntentEncoderJob, ridge=0.1, num_folds=2),
        FitJob(columns=columns, estimator=MCDropout.Config(), view="plain"),
        SumJob(columns=columns, estimator=MCDropout.Config()),
        OffsetJob(fit=data, labelled={"similarity": (data, tokens)}, validation={"similarity": data}),
        made(WordVectorJob, settings=WordVectors(), width=8),
        made(IntentClassifierJob, settings=IntentLearning(), encoder=IART.Config(backbone=name)),
        GeneratorJob(task="answer", generator=LanguageModel.Config(model=name), **of_data),
        GenerateJob(
            wanted="grey_answers", num_answers=2, generator=Retrieval.Config(), models={"answer": data}, **of_data
        ),
        TokenizeTextsJob(texts=data, backbone=name, budget=BUDGET),
        TokenizeJob(data=data, backbone=name, budget=BUDGET, num_pools={"train": 9}),
        TokenizeLogsJob(logs=data, num_dialogues=3, backbone=name, budget=BUDGET),
        PseudoLabelJob(scores=data, rule=PseudoLabelRule(), round=1),
        RepeatJob(pseudo_labels=data, tokens=tokens, selection=SELECTION, with_intents=True, seed=1),
        score_job(Path("tokens"), Path("model"), selection=SELECTION),
        ExternalScoreJob(split="test", model=name, **of_data),
        BiEncoderScoreJob(split="test", encoder=TransformerEncoder.Config(backbone=name), model=tokens, **of_data),
        WordScoreJob(split="test", scorer="bm25", **of_data),
        made(DistilJob, ranker=ranker, targets=tokens),
        TargetJob(scores=(tokens,), fitted=data),
    ]
    return {type(job): job for job in found}


def jobs(base: type[Job] = Job) -> Iterator[type[Job]]:
    import_all("icalib")
    for job in base.__subclasses__():
        if job.__module__.startswith("icalib."):
            if not job.__name__.startswith("_"):  # a base
                yield job
            yield from jobs(job)


CLASSES = sorted(set(jobs()) - ABSTRACT, key=lambda job: job.__name__)


def test_every_class_of_jobs_has_an_example(tiny_bert: Path) -> None:
    assert set(CLASSES) == set(examples(tiny_bert))


@pytest.mark.parametrize("job", CLASSES, ids=lambda job: job.__name__)
def test_a_job_travels_as_json_and_keeps_its_digest(job: type[Job], tiny_bert: Path) -> None:
    example = examples(tiny_bert)[job]
    again = read_job(example.to_json())
    assert again == example
    assert again.digest() == example.digest()


@pytest.mark.parametrize("job", CLASSES, ids=lambda job: job.__name__)
def test_every_field_counts_unless_it_says_otherwise(
    job: type[Job], tiny_bert: Path, tiny_roberta: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = examples(tiny_bert)[job]
    num_changes = 0
    for path, changed, counts in changes(example, str(tiny_roberta)):
        assert (changed.digest() != example.digest()) == counts, path
        num_changes += 1
    assert num_changes >= len(job.model_fields)
    monkeypatch.setattr(job, "version", job.version + 1)
    assert examples(tiny_bert)[job].identity()["version"] == job.version


def test_another_default_is_another_digest() -> None:
    first, second = (create_model("Seeded", __base__=Job, seed=(int, default))() for default in (1, 2))
    assert first.digest() != second.digest()


def changes(settings: Any, backbone: str) -> Iterator[tuple[str, Any, bool]]:
    """Copies of some settings with one field changed each, at any depth; and whether the digest must follow."""
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        counts = NOT_IN_DIGEST not in field.metadata
        if isinstance(value, BaseModel):
            inner = list(changes(value, backbone))
            if isinstance(value, ComponentConfig):
                inner += [("", other, True) for other in others(value)]
        elif any(isinstance(mark, ByContent) for mark in field.metadata):
            inner = [("", backbone, True)]
        else:
            inner = [("", another(value, field), True)]
        for path, changed, inner_counts in inner:
            copy = settings.model_copy(update={name: changed})
            yield f"{name}.{path}".rstrip("."), copy, counts and inner_counts


def others(config: ComponentConfig) -> Iterator[ComponentConfig]:
    """Another component in the place of one."""
    base = next(kind for kind in type(config).owner.__mro__[::-1] if kind.__name__.startswith("Abstract"))
    for owner in components(base).values():
        required = any(field.is_required() for field in owner.Config.model_fields.values())
        if owner is not type(config).owner and not required:
            yield owner.Config()
            return


def another(value: Any, field: FieldInfo) -> Any:
    """A value that a field doesn't have."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, Path):
        return value / "elsewhere"
    if isinstance(value, str):
        choices = [choice for choice in literals(field.annotation) if choice != value]
        return choices[0] if choices else f"{value}x"
    if isinstance(value, tuple):
        return (*value, "x")
    if isinstance(value, dict):
        return {key: another(item, field) for key, item in value.items()} or {"train": 1}
    if isinstance(value, Artifact):
        return value.model_copy(update={"digest": "other"})
    assert value is None, value
    return filled(field.annotation)


def literals(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [choice for part in get_args(annotation) for choice in literals(part)]


def filled(annotation: Any) -> Any:
    """Some value of an optional field."""
    if get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        return next((made for part in get_args(annotation) if (made := filled(part)) is not None), None)
    if get_origin(annotation) is Literal:
        return get_args(annotation)[0]
    if isinstance(annotation, type) and issubclass(annotation, ComponentConfig):
        return next(iter(components(annotation.owner).values())).Config()
    if annotation is Fold:
        return Fold(index=0, number=2)
    if annotation is Artifact:
        return known(Path("filled"))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation()
    return {int: 1, float: 0.5, str: "filled", bool: True}.get(annotation)
