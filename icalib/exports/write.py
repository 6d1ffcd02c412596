"""Writing an export: the whole folder or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from icalib.core.errors import SettingError
from icalib.core.files import whole_folder, write_json
from icalib.core.storage import push
from icalib.core.version import __version__
from icalib.encoders.backbone import Tokenizer
from icalib.exports.agreement import Comparison, pools_to_compare
from icalib.exports.card import model_card
from icalib.exports.choices import ExportFormat
from icalib.exports.cross_encoder import write_cross_encoder
from icalib.exports.onnx import write_onnx
from icalib.exports.sentence_transformer import write_sentence_transformer
from icalib.exports.subject import Subject
from icalib.exports.texts import EXPORT_FILE, stock_tokenizer, texts_of

_WRITERS: Mapping[ExportFormat, Callable[..., Comparison]] = {
    "cross-encoder": write_cross_encoder,
    "sentence-transformer": write_sentence_transformer,
    "onnx": write_onnx,
}


def write_export(subject: Subject[Any], format: ExportFormat, out: Path, *, license: str) -> None:
    """Write a folder with the model, its tokenizer and a card, after comparing it with the run's model.

    Raises:
        SettingError: the backbone or its tokenizer isn't supported, or `out` isn't empty.
        ExportError: the exported model computes something else.
    """
    backbone, layout = subject.encoder.backbone, subject.model.layout
    tokenizer = stock_tokenizer(
        backbone,
        layout,
        has_segments=subject.model.encoder.has_segments,
        of_pairs=format != "sentence-transformer",
    )
    try:
        texts = texts_of(layout, Tokenizer(backbone), tokenizer, subject.run.folder.context_turns)
    except SettingError:
        if format != "onnx":  # which reads ids
            raise
        texts = None
    with whole_folder(out) as folder:
        comparison = _WRITERS[format](subject, folder, tokenizer, texts)
        agreement = comparison.agreement(pools_to_compare(subject.run))
        about = {
            "version": 1,
            "format": format,
            "icalib": __version__,
            "method": subject.run.settings.method,
            "distilled": subject.teacher is not None,
            "data_digest": subject.run.data_digest,
            "calibration": subject.calibration.model_dump(mode="json"),
            "texts": texts.model_dump(mode="json") if texts else None,
            "agreement": agreement._asdict(),
        }
        write_json(folder / EXPORT_FILE, about)
        card = model_card(subject, format, name=out.name, license=license, texts=texts, agreement=agreement)
        card.save(folder / "README.md")
    push(out)
