"""Model cards: README.md with front matter that the Hugging Face hub and other tools read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml

from icalib.core.files import read_json
from icalib.core.version import __version__
from icalib.data.schema import Split
from icalib.encoders.backbone import EMBEDDED
from icalib.exports.agreement import Agreement
from icalib.exports.subject import Measured, measured
from icalib.metrics.calibration import reliability_table
from icalib.metrics.pairs import PoolScores

_EMBEDDED_NAME = "sentence-transformers/all-MiniLM-L6-v2"
Task = Literal["text-ranking", "sentence-similarity"]
_KINDS: Mapping[Task, str] = {"text-ranking": "cross-encoder", "sentence-similarity": "bi-encoder"}
_LOWER_IS_BETTER = ("ECE", "NLL", "Brier")


def model_card(
    subject: Measured,
    *,
    name: str,
    library: str,
    license: str,
    usage: str,
    agreement: Agreement | None,
    task: Task = "text-ranking",
) -> str:
    """Return the text of a model card.

    Args:
        subject: what was exported.
        name: of the model.
        library: the hub's name of the library that loads it.
        license: the model's licence.
        usage: how it is loaded, in Markdown.
        agreement: with the ranker, from texts on; None where it wasn't measured.
        task: the hub's name of what it does.
    """
    front = yaml.safe_dump(_front_matter(subject, name, library, license, task), sort_keys=False, allow_unicode=True)
    parts = [
        f"---\n{front}---",
        f"# {name}",
        _what(subject),
        f"## Use\n\n{usage}",
        f"## Metrics\n\n{_metrics(subject)}",
        f"## Calibration\n\n{_calibration(subject)}",
        f"## Export\n\n{_export(subject, agreement)}",
        f"## Intended use and limits\n\n{_limits(subject, license)}",
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(subject: Measured, name: str, library: str, license: str, task: Task) -> dict[str, Any]:
    settings = subject.run.settings
    base = base_model(settings.backbone)
    tags = ["reranker", "calibrated", "icalib"]
    if library == "sentence-transformers":
        tags = ["sentence-transformers", _KINDS[task], *tags]
    results = [
        {
            "task": {"type": "text-ranking", "name": "Text Ranking"},
            "dataset": {"type": settings.data.name, "name": settings.data.name, "split": split},
            "metrics": [{"type": tag.lower(), "name": tag, "value": value} for tag, value in measured(scores).items()],
        }
        for split, scores in subject.scores.items()
    ]
    return {
        "library_name": library,
        "pipeline_tag": task,
        "license": license,
        **({"base_model": base} if base else {}),
        "tags": tags,
        "model-index": [{"name": name, "results": results}],
    }


def base_model(backbone: str) -> str | None:
    """Return the hub's name of a backbone; None for a folder."""
    if backbone == EMBEDDED:
        return _EMBEDDED_NAME
    return None if "://" in backbone or Path(backbone).exists() else backbone


def _what(subject: Measured) -> str:
    settings, provenance = subject.run.settings, read_json(subject.run.folder.path / "provenance.json")
    made = "distilled from a run" if subject.teacher is not None else "from a run"
    return (
        f"Ranks candidate answers to the last utterances of a dialogue, with the probability that each is right; "
        f"{made} of `{settings.method}` (icalib {__version__}).\n\n"
        f"- Backbone: {base_model(settings.backbone) or Path(settings.backbone).name}\n"
        f"- Data: `{settings.data.name}`, digest `{provenance['data_digest']}`; labelled fraction of the training "
        f"pools {settings.labelled:g}, seed {settings.seed}\n"
        f"- Trained with icalib {provenance['icalib']}, finished {provenance['finished']}"
    )


def _metrics(subject: Measured) -> str:
    rows: list[tuple[str, Mapping[str, float]]] = []
    for split, scores in subject.scores.items():
        rows.append((f"this model, {split}", measured(scores)))
        if subject.teacher is not None:
            rows += _against_teacher(split, scores, subject.teacher)
    names = list(rows[0][1])
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    lines += [f"| {label} | {' | '.join(f'{values[name]:.4f}' for name in names)} |" for label, values in rows]
    note = f"{', '.join(_LOWER_IS_BETTER)}: lower is better. Test pools chose nothing; validation pools chose "
    note += "the weights, the calibration and the decision threshold."
    if subject.teacher is not None:
        note += " The loss is what distilling cost: how much worse the model is than the run, negative where it is "
        note += "better."
    return "\n".join(lines) + f"\n\n{note}"


def _against_teacher(
    split: Split, scores: PoolScores, teacher: Mapping[Split, PoolScores]
) -> list[tuple[str, Mapping[str, float]]]:
    own, its = measured(scores), measured(teacher[split])
    loss = {name: (own[name] - its[name]) * (1 if name in _LOWER_IS_BETTER else -1) for name in own}
    return [(f"the run, {split}", its), (f"loss, {split}", loss)]


def _calibration(subject: Measured) -> str:
    found = {
        "none": "None: the probability is the model's own, σ(logit).",
        "platt": "Platt scaling, fitted on the validation pools.",
        "temperature": "Temperature scaling, fitted on the validation pools.",
    }.get(subject.calibrator, f"`{subject.calibrator}`, fitted on the validation pools.")
    split: Split = "test" if "test" in subject.scores else "validation"
    scores = subject.scores[split]
    lines = ["| probability | pairs | mean probability | right |", "|---|---|---|---|"]
    lines += [
        f"| {row['lo']:.1f} to {row['hi']:.1f} | {row['n']} | {row['conf']:.3f} | {row['acc']:.3f} |"
        for row in reliability_table(scores.prob, scores.label).to_pylist()
        if row["n"]
    ]
    sizes = sorted({int(size) for size in scores.offsets[1:] - scores.offsets[:-1]})
    return (
        f"{found} On the {split} pools ({_sizes(sizes)} candidates each):\n\n"
        + "\n".join(lines)
        + "\n\nA probability holds for pools like these: with another number of wrong candidates per right one, or "
        "other texts, calibrate again."
    )


def _export(subject: Measured, agreement: Agreement | None) -> str:
    if agreement is None:
        return "The weights were compared with the run's ranker on random tokens when this was written."
    cut = agreement.num_pairs - agreement.num_same_tokens
    return (
        f"Compared with the run's ranker on {agreement.num_pools} validation pools when this was written: "
        f"{agreement.num_same_best} have the same best candidate, {agreement.num_same_tokens} of "
        f"{agreement.num_pairs} pairs the same tokens"
        + (f" (the other {cut} are longer than the token limits, which cut a word)" if cut else "")
        + f", whose logits differ by at most {agreement.largest_difference:.1e}."
    )


def _limits(subject: Measured, license: str) -> str:
    return (
        "For ranking answers that were written before, e.g. suggestions to agents of a help desk, in dialogues like "
        f"those of `{subject.run.settings.data.name}`. It does not check whether an answer is true, safe or polite, "
        "and ranks the best of bad candidates first: use the probability to abstain. It was not tested on other "
        "domains or languages, nor for fairness between groups of users.\n\n"
        f"Licence: {license}. The backbone's licence and the terms of the training data apply, too."
    )


def _sizes(sizes: Sequence[int]) -> str:
    return str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
