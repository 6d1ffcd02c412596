"""Writing an export: the whole folder with its model card, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from icalib.core.errors import SettingError
from icalib.core.files import atomic_dir, read_json, write_json
from icalib.core.storage import push
from icalib.core.version import __version__
from icalib.encoders.backbone import EMBEDDED, Tokenizer
from icalib.exports.agreement import Comparison, pools_to_compare
from icalib.exports.choices import ExportFormat
from icalib.exports.onnx import write_onnx
from icalib.exports.stock import write_cross_encoder, write_sentence_transformer
from icalib.exports.subject import Subject
from icalib.exports.texts import EXPORT_FILE, stock_tokenizer, texts_of
from icalib.metrics.calibration import reliability_table
from icalib.metrics.catalogue import find_metric
from icalib.metrics.pairs import PoolScores

_WRITERS: Mapping[ExportFormat, Callable[..., Comparison]] = {
    "cross-encoder": write_cross_encoder,
    "sentence-transformer": write_sentence_transformer,
    "onnx": write_onnx,
}


def write_export(subject: Subject[Any], format: ExportFormat, out: Path, *, license: str) -> None:
    """Write a folder with the model, its tokenizer and a card, after comparing it with the run's model.

    A SettingError says that the backbone isn't supported or `out` isn't empty, an ExportError that outputs differ.
    """
    backbone, layout = subject.encoder.backbone, subject.model.layout
    tokenizer = stock_tokenizer(
        backbone, layout, has_segments=subject.model.encoder.has_segments, of_pairs=format != "sentence-transformer"
    )
    try:
        texts = texts_of(layout, Tokenizer(backbone), tokenizer, subject.run.folder.context_turns)
    except SettingError:
        if format != "onnx":  # which reads ids
            raise
        texts = None
    with atomic_dir(out) as folder:
        comparison = _WRITERS[format](subject, folder, tokenizer, texts)
        agreement = comparison.agreement(pools_to_compare(subject.run))
        about: dict[str, Any] = {
            "version": 1,
            "format": format,
            "icalib": __version__,
            "method": subject.run.config.method,
            "distilled": subject.teacher is not None,
            "metrics": dict(_metrics(subject)),
            "data_digest": subject.run.folder.data_digest,
            "calibration": subject.calibration.model_dump(mode="json"),
            "texts": texts.model_dump(mode="json") if texts else None,
            "agreement": agreement._asdict(),
        }
        write_json(folder / EXPORT_FILE, about)
        _model_card(subject, about, name=out.name, license=license).save(folder / "README.md")
    push(out)


_TEMPLATE = Path(__file__).with_name("card.md.j2")
_EMBEDDED_NAME = "sentence-transformers/all-MiniLM-L6-v2"
_LOWER_IS_BETTER = ("ECE", "NLL", "Brier")
_TAGS: Mapping[ExportFormat, tuple[str, ...]] = {
    "cross-encoder": ("sentence-transformers", "cross-encoder"),
    "sentence-transformer": ("sentence-transformers", "bi-encoder"),
    "onnx": (),
}


def _model_card(subject: Subject[Any], about: Mapping[str, Any], *, name: str, license: str) -> ModelCard:
    """Return the card of an exported model, which shows what EXPORT_FILE says of it."""
    format, backbone, data = about["format"], subject.run.config.backbone, subject.run.config.data.name
    split, scores = list(subject.scores.items())[-1]
    sizes = scores.sizes()
    front_matter = ModelCardData(
        model_name=name,
        library_name="onnx" if format == "onnx" else "sentence-transformers",
        pipeline_tag="sentence-similarity" if format == "sentence-transformer" else "text-ranking",
        license=license,
        base_model=_base_model(backbone),
        tags=[*_TAGS[format], "reranker", "calibrated", "icalib"],
        eval_results=[
            EvalResult(
                task_type="text-ranking",
                task_name="Text Ranking",
                dataset_type=data,
                dataset_name=data,
                dataset_split=split,
                metric_type=metric.lower(),
                metric_name=metric,
                metric_value=value,
            )
            for split, scores in subject.scores.items()
            for metric, value in _values(scores).items()
        ],
    )
    return ModelCard.from_template(
        front_matter,
        template_path=str(_TEMPLATE),
        **about,
        model_name=name,
        subject=subject,
        provenance=read_json(subject.run.folder.path / "provenance.json"),
        backbone=Path(backbone).name,
        separator=repr(about["texts"]["utterance_separator"]) if about["texts"] else None,
        lower_is_better=_LOWER_IS_BETTER,
        split=split,
        sizes=" to ".join(map(str, sorted({sizes.min(), sizes.max()}))),
        reliability=reliability_table(scores.prob, scores.label).to_pylist(),
    )


def _base_model(backbone: str) -> str | None:
    """Return the hub's name of a backbone; None for a folder."""
    if backbone == EMBEDDED:
        return _EMBEDDED_NAME
    return None if "://" in backbone or Path(backbone).exists() else backbone


def _metrics(subject: Subject[Any]) -> Iterator[tuple[str, dict[str, float]]]:
    for split, scores in subject.scores.items():
        own = _values(scores)
        yield f"this model, {split}", own
        if subject.teacher is not None:
            its = _values(subject.teacher[split])
            loss = {name: (own[name] - its[name]) * (1 if name in _LOWER_IS_BETTER else -1) for name in own}
            yield f"the run, {split}", its
            yield f"loss, {split}", loss


def _values(scores: PoolScores) -> dict[str, float]:
    return {name: find_metric(name).value(scores) for name in ("R@1", "MAP", *_LOWER_IS_BETTER)}
