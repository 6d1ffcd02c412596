"""Writing an export: the whole folder or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from icalib.calibration.fitted import AffineMap
from icalib.core.errors import SettingError
from icalib.core.files import whole_folder, write_json
from icalib.core.storage import push
from icalib.core.version import __version__
from icalib.data.encoding import Layout
from icalib.encoders.backbone import Tokenizer
from icalib.exports.agreement import Agreement, agreement, validation_pools
from icalib.exports.card import model_card
from icalib.exports.choices import FORMATS, CalibrationChoice, ExportFormat
from icalib.exports.cross_encoder import (
    check_family,
    check_logits,
    classifier_of,
    write_cross_encoder,
    write_tokenizer,
)
from icalib.exports.onnx import MODEL, OPSET, check_installed, write_graph
from icalib.exports.refusals import check_cross_encoder, check_is_ranker, check_onnx, check_sentence_transformer
from icalib.exports.sentence_transformer import check_agreement, plain_backbone, write_sentence_transformer
from icalib.exports.subject import BiEncoderSubject, Measured, Subject
from icalib.exports.texts import EXPORT_FILE, PairTexts, stock_tokenizer, texts_of
from icalib.models.checkpoint import load_ranker_config
from icalib.pipeline.inference import FinishedRun


def check_exportable(run: FinishedRun, format: ExportFormat, calibration: CalibrationChoice, *, distil: bool) -> None:
    """Refuse what a format can't express, and missing packages, before anything is computed.

    Raises:
        SettingError: names the part, and what to do.
    """
    run.check_has_models()
    if format == "onnx":
        check_installed()
    if format == "sentence-transformer":
        check_sentence_transformer(run, calibration, distil=distil)
        return
    if distil:  # a student is a plain cross-encoder
        return
    check_is_ranker(run, format)
    config = load_ranker_config(run.members[0][0])
    if format == "cross-encoder":
        check_cross_encoder(run, config, calibration)
    else:
        check_onnx(run, config, calibration)


def exact_format(run: FinishedRun, calibration: CalibrationChoice) -> ExportFormat:
    """Return the format that most programs read among those that compute what the run does.

    Raises:
        SettingError: none does. It says why a cross-encoder doesn't, and names the alternatives.
    """
    refusals: list[SettingError] = []
    for format in FORMATS:
        try:
            check_exportable(run, format, calibration, distil=False)
        except SettingError as refusal:
            refusals.append(refusal)
        else:
            return format
    raise refusals[0]


def export_cross_encoder(subject: Subject, out: Path, *, license: str) -> Agreement | None:
    """Write a folder for `sentence_transformers.CrossEncoder`.

    Returns:
        How far it agrees with the ranker on the run's validation pools; None if their folder is missing.

    Raises:
        SettingError: the backbone or its tokenizer isn't supported, or `out` isn't empty.
        ExportError: the exported model computes something else.
    """
    check_family(subject.ranker)
    ranker, calibration = subject.ranker, subject.affine
    backbone, layout = ranker.config.encoder.backbone, ranker.layout
    tokenizer = stock_tokenizer(backbone, layout, has_segments=ranker.encoder.has_segments)
    texts = texts_of(layout, Tokenizer(backbone), tokenizer, subject.run.folder.context_turns)
    model = classifier_of(ranker, calibration)
    difference = check_logits(model, ranker, calibration)
    pools = validation_pools(subject.run.settings.data, subject.run.data_digest)
    compared = agreement(model, tokenizer, texts, ranker, calibration, pools) if pools else None
    with whole_folder(out) as folder:
        write_cross_encoder(folder, model, tokenizer)
        about = {**facts(subject, "cross-encoder"), "largest_difference": difference}
        write_json(folder / EXPORT_FILE, {**about, "texts": texts.model_dump(mode="json")})
        card = model_card(
            subject,
            name=out.name,
            library="sentence-transformers",
            license=license,
            usage=_cross_encoder_usage(out.name, texts),
            agreement=compared,
        )
        (folder / "README.md").write_text(card, encoding="utf-8")
    push(out)
    return compared


def export_sentence_transformer(subject: BiEncoderSubject, out: Path, *, license: str) -> Agreement | None:
    """Write a folder for `sentence_transformers.SentenceTransformer`.

    Returns:
        How far it agrees with the run on its validation pools; None if their folder is missing.

    Raises:
        SettingError: the backbone's tokenizer isn't supported, or `out` isn't empty.
        ExportError: the exported model computes something else.
    """
    bi_encoder, of_cosine = subject.bi_encoder, subject.of_cosine
    backbone, layout = bi_encoder.config.backbone, bi_encoder.layout
    tokenizer = stock_tokenizer(backbone, layout, has_segments=bi_encoder.encoder.has_segments, of_pairs=False)
    texts = texts_of(layout, Tokenizer(backbone), tokenizer, subject.run.folder.context_turns)
    model = plain_backbone(bi_encoder)
    pools = validation_pools(subject.run.settings.data, subject.run.data_digest)
    compared = check_agreement(model, tokenizer, texts, bi_encoder, of_cosine, pools) if pools else None
    with whole_folder(out) as folder:
        write_sentence_transformer(folder, model, tokenizer)
        about = {**facts(subject, "sentence-transformer"), "of_cosine": of_cosine.model_dump(mode="json")}
        write_json(folder / EXPORT_FILE, {**about, "texts": texts.model_dump(mode="json")})
        card = model_card(
            subject,
            name=out.name,
            library="sentence-transformers",
            license=license,
            usage=_bi_encoder_usage(out.name, texts, of_cosine),
            agreement=compared,
            task="sentence-similarity",
        )
        (folder / "README.md").write_text(card, encoding="utf-8")
    push(out)
    return compared


def export_onnx(subject: Subject, out: Path, *, license: str) -> None:
    """Write a folder with the whole ranker as an ONNX graph, and its tokenizer.

    Raises:
        SettingError: `out` isn't empty.
        ExportError: the graph computes something else.
    """
    with whole_folder(out) as folder:
        texts = _write_graph_files(subject, folder)
        usage = _onnx_usage(out.name, texts, subject.ranker.layout)
        card = model_card(subject, name=out.name, library="onnx", license=license, usage=usage, agreement=None)
        (folder / "README.md").write_text(card, encoding="utf-8")
    push(out)


def _write_graph_files(subject: Subject, folder: Path) -> PairTexts | None:
    """Write the graph, its tokenizer and the facts about them, and return how a stock tokenizer gets pairs.

    Returns:
        None where no stock tokenizer gives the tokens of training; then the ids are made utterance by utterance.
    """
    ranker = subject.ranker
    backbone, layout = ranker.config.encoder.backbone, ranker.layout
    context_turns = subject.run.folder.context_turns
    tokenizer = stock_tokenizer(backbone, layout, has_segments=ranker.encoder.has_segments)
    try:
        texts = texts_of(layout, Tokenizer(backbone), tokenizer, context_turns)
    except SettingError:
        texts = None
    difference = write_graph(subject, folder / MODEL)
    write_tokenizer(folder, tokenizer)
    about = {**facts(subject, "onnx"), "opset": OPSET, "largest_difference": difference}
    inputs = {
        "start": layout.cls,
        "separator": layout.separator,
        "padding": layout.padding,
        "num_separators": layout.num_separators,
        "turn_separators": layout.turn_separators,
        "context_turns": context_turns,
        **layout.limits.model_dump(mode="json"),
    }
    of_texts = texts.model_dump(mode="json") if texts else None
    write_json(folder / EXPORT_FILE, {**about, "inputs": inputs, "texts": of_texts})
    return texts


def facts(subject: Measured, format: ExportFormat) -> dict[str, Any]:
    """Return what an exported folder says about its origin."""
    return {
        "version": 1,
        "format": format,
        "icalib": __version__,
        "method": subject.run.settings.method,
        "distilled": subject.teacher is not None,
        "data_digest": subject.run.data_digest,
        "calibration": subject.calibration.model_dump(mode="json") if subject.calibration is not None else None,
    }


def _question_code(texts: PairTexts) -> str:
    return f"""context = ["My printer hums.", "Which model is it?", "The big one."]
candidates = ["Restart it.", "Hello!"]
text = {texts.utterance_separator!r}.join(context[-{texts.context_turns}:])"""


def _cross_encoder_usage(name: str, texts: PairTexts) -> str:
    limits = texts.limits
    return f"""```python
from sentence_transformers import CrossEncoder

model = CrossEncoder("{name}")
{_question_code(texts)}
model.predict([(text, candidate) for candidate in candidates])  # probabilities
model.rank(text, candidates)
```

The first text is the context: its last {texts.context_turns} utterances or fewer, stripped of white space at both ends
and joined by {texts.utterance_separator!r}, so that the tokens are those of training. Speakers are not read. A context
had at most {limits.max_context_tokens} tokens in training, its end, and a candidate {limits.max_candidate_tokens}, its
start; longer pairs are cut at the start of the context. `icalib.pair_texts("{name}", context, candidates)` returns
pairs that are cut as in training."""


def _bi_encoder_usage(name: str, texts: PairTexts, of_cosine: AffineMap) -> str:
    limits = texts.limits
    return f"""```python
import torch
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{name}")
{_question_code(texts)}
cosines = model.similarity(model.encode([text]), model.encode(candidates))[0]
torch.sigmoid({of_cosine.slope:.6g} * cosines + {of_cosine.offset:.6g})  # probabilities
```

Vectors of candidates can be computed once and stored in an index. A context is its last {texts.context_turns}
utterances or fewer, stripped of white space at both ends and joined by {texts.utterance_separator!r}, so that the
tokens are those of training; its last {limits.max_context_tokens} tokens are read. Speakers are not read. Of a
candidate, {limits.max_candidate_tokens} tokens were read in training, its start.
`icalib.pair_texts("{name}", context, candidates)` returns both cut as in training."""


def _onnx_usage(name: str, texts: PairTexts | None, layout: Layout) -> str:
    limits = layout.limits
    return f"""{_onnx_code(name) if texts is not None else ""}Inputs, int64 [pairs, tokens]: `input_ids`,
`attention_mask`, and `token_type_ids`, which is 0 up to the candidate, and 1 for the candidate and its last separator.
Outputs, float32 [pairs]: `logits`, by which candidates are ranked, `probabilities`, which are calibrated, and
`variances` of the logits, 0 without a posterior.

A pair's ids are {layout.cls} (start), those of the utterances, {layout.num_separators} times {layout.separator}
(separator), those of the candidate, {layout.separator}. Each utterance is tokenised by itself
without special tokens{f", and {layout.separator} is between utterances" if layout.turn_separators else ""}; the last
{limits.max_context_tokens} tokens of the context are kept, and the first {limits.max_candidate_tokens} of the
candidate."""


def _onnx_code(name: str) -> str:
    return f"""```python
import icalib
import numpy as np
import onnxruntime
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
session = onnxruntime.InferenceSession("{name}/{MODEL}")
pairs = icalib.pair_texts("{name}", ["My printer hums."], ["Restart it.", "Hello!"])
encoded = tokenizer(*map(list, zip(*pairs)), padding=True, truncation=True)
segments = [[int(part == 1) for part in encoded.sequence_ids(row)] for row in range(len(pairs))]
for row, (ids, mask) in enumerate(zip(segments, encoded["attention_mask"])):
    ids[sum(mask) - 1] = 1  # the candidate's separator
inputs = {{"input_ids": encoded["input_ids"], "attention_mask": encoded["attention_mask"], "token_type_ids": segments}}
outputs = session.run(None, {{key: np.array(value, np.int64) for key, value in inputs.items()}})
logits, probabilities, variances = outputs
```

"""
