"""Writing an export: the whole folder or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from icalib.core.files import read_json, whole_folder
from icalib.core.storage import push
from icalib.core.version import __version__
from icalib.encoders.backbone import Tokenizer
from icalib.exports.agreement import Agreement, agreement, validation_pools
from icalib.exports.card import model_card
from icalib.exports.cross_encoder import check_family, check_logits, classifier_of, write_cross_encoder
from icalib.exports.subject import Subject
from icalib.exports.texts import PairTexts, stock_tokenizer, texts_of



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
    provenance = read_json(subject.run.folder.path / "provenance.json")
    backbone, layout = ranker.config.encoder.backbone, ranker.layout
    tokenizer = stock_tokenizer(backbone, layout)
    texts = texts_of(layout, Tokenizer(backbone), tokenizer, int(provenance["context_turns"]))
    model = classifier_of(ranker, calibration)
    difference = check_logits(model, ranker, calibration)
    pools = validation_pools(subject.run.settings.data, provenance["data_digest"])
    compared = agreement(model, tokenizer, texts, ranker, calibration, pools) if pools else None
    with whole_folder(out) as folder:
        write_cross_encoder(folder, model, tokenizer)
        texts.write(folder, {**facts(subject, "cross-encoder"), "largest_difference": difference})
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


def facts(subject: Subject, format: Literal["cross-encoder", "onnx"]) -> dict[str, Any]:
    """Return what an exported folder says about its origin."""
    provenance = read_json(subject.run.folder.path / "provenance.json")
    return {
        "version": 1,
        "format": format,
        "icalib": __version__,
        "method": subject.run.settings.method,
        "distilled": subject.teacher is not None,
        "data_digest": provenance["data_digest"],
        "calibration": subject.calibration.model_dump(mode="json") if subject.calibration is not None else None,
    }


def _cross_encoder_usage(name: str, texts: PairTexts) -> str:
    limits = texts.limits
    return f"""```python
from sentence_transformers import CrossEncoder

model = CrossEncoder("{name}")
context = ["My printer hums.", "Which model is it?", "The big one."]
candidates = ["Restart it.", "Hello!"]
text = {texts.utterance_separator!r}.join(context[-{texts.context_turns}:])
model.predict([(text, candidate) for candidate in candidates])  # probabilities
model.rank(text, candidates)
```

The first text is the context: its last {texts.context_turns} utterances or fewer, stripped of white space at both ends
and joined by {texts.utterance_separator!r}, so that the tokens are those of training. Speakers are not read. In
training, a context had at most {limits.max_context_tokens} tokens, its end, and a candidate {limits.max_candidate_tokens},
its start; longer pairs are cut at the start of the context. `icalib.pair_texts("{name}", context, candidates)` returns
pairs that are cut as in training."""
