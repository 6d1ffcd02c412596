"""Verbs of labelling: which pools to label next or again, and their labels back into pools."""

from __future__ import annotations

import json
import sys
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from icalib.cli.app import app, subverb
from icalib.cli.options import Json, PlaceOptions, Run, place_argument, place_option
from icalib.cli.output import near, say, starting
from icalib.core.errors import SettingError
from icalib.core.storage import location

if TYPE_CHECKING:
    from icalib.labelling.ask import AskPlan

group = typer.Typer(
    help="Choose pools for annotators, and turn what they say into labels.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(group, name="label")


@subverb(group, "next")
def label_next(
    run: Annotated[Path | None, place_argument("Finished run, among whose unlabelled pools are chosen.")] = None,
    *,
    data: Annotated[
        Path | None, place_option("Pool folder in place of a run, for the first labels: chosen at random.")
    ] = None,
    number: Annotated[int, typer.Option(min=1, help="Number of pools.")] = 50,
    by: Annotated[
        Literal["random", "uncertain", "diverse", "mixed"],
        typer.Option(
            help="uncertain: which candidate is right is the least clear to the model; diverse: contexts unlike the "
            "labelled ones and each other; mixed: half of each. These need a run."
        ),
    ] = "random",
    seed: Annotated[int, typer.Option(help="Seed of random pools, and of the order of equally uncertain ones.")] = 1,
    out: Annotated[
        Path, place_option("File to write: .json for Label Studio, with its configuration as .xml, or .csv.")
    ] = Path("batch.json"),
    place: PlaceOptions,
) -> None:
    """Choose unlabelled training pools to label next, and write them for annotators.

    None was annotated before, and unless they are random no two are of one dialogue while there are enough. The run's
    scores of its pools are cached, so that the next batch takes seconds.
    """
    from icalib.api.labels import label_next as choose

    starting("label next")
    batch = choose(run, out, data=data, number=number, by=by, seed=seed, **vars(place.place()))
    configured = f" with {batch.config}" if batch.config else ""
    say(
        f"{location(batch.path)}: {len(batch.pool_ids)} of {batch.num_unlabelled} unlabelled pools, of "
        f"{batch.num_dialogues} dialogues, {batch.how}. Label them{configured}, then: icalib label import FILE --data "
        f"{_typed(batch.data)} --out NEW_POOLS"
    )


@subverb(group, "suspects")
def label_suspects(
    run: Run,
    *,
    number: Annotated[int, typer.Option(min=1, help="Maximum number of pools.")] = 50,
    folds: Annotated[
        int, typer.Option(min=2, help="K trainings on (K - 1)/K of the labels each: K - 1 times as long as one on all.")
    ] = 2,
    out: Annotated[
        Path | None, place_option("File to write: .json for Label Studio, with its configuration as .xml, or .csv.")
    ] = None,
    as_json: Json = False,
    place: PlaceOptions,
) -> None:
    """List labels of a run's training pools that are probably wrong, and write the pools for annotators.

    The run's model is trained again without each fold of the labelled pools, which it then scores: a label looks wrong
    if another candidate is as probable as labels are on average, and more probable than the label.
    """
    from icalib.api.labels import label_suspects as find
    from icalib.reports.suspects import print_suspects

    starting("label suspects")
    found = find(run, out, number=number, folds=folds, **vars(place.place()))
    print_suspects(found)
    if out is not None and found.suspects:
        configured = f" with {out.with_suffix('.xml')}" if out.suffix == ".json" else ""
        is_default = found.fraction == found.pool_set.default_labelled_fraction
        say(
            f"{location(out)}: {len(found.suspects)} pools, without their labels. Label them again{configured}, then: "
            f"icalib label import FILE --data {_typed(found.data)} --out NEW_POOLS; icalib run METHOD --data NEW_POOLS"
            + ("" if is_default else f" --labelled {found.fraction}")
        )
    if as_json:
        typer.echo(json.dumps(found.as_json()))


@subverb(group, "ask")
def label_ask(
    data: Annotated[Path, place_argument("Pool folder.")],
    *,
    url: Annotated[str, typer.Option(help="OpenAI-compatible endpoint, e.g. http://127.0.0.1:8000/v1.")],
    model: Annotated[str, typer.Option(help="The model's name there.")],
    split: Annotated[
        Literal["train", "validation", "test"],
        typer.Option(help="Answers about validation and test pools are never labels: they can be --scores."),
    ] = "train",
    number: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of unlabelled training pools (default: 300), besides at most 100 labelled ones that measure "
            "the model's precision; or of pools of another split (default: all, also with --scores).",
        ),
    ] = None,
    out: Annotated[Path, place_option("File of answers (.jsonl); what it has isn't asked again.")] = Path(
        "answers.jsonl"
    ),
    scores: Annotated[
        Path | None, place_option("Write the answers as a judge's scores, too (.jsonl), for `icalib evaluate --judge`.")
    ] = None,
    requests_per_minute: Annotated[float, typer.Option(help="Maximum number of requests that begin in a minute.")] = 60,
    max_tokens: Annotated[
        int, typer.Option(min=1, help="Maximum length of a reply; models that reason need more.")
    ] = 16,
    key_variable: Annotated[
        str, typer.Option(help="Environment variable that has the API key; without it none is sent.")
    ] = "OPENAI_API_KEY",
    price_per_million_tokens: Annotated[float, typer.Option(min=0, help="For the cost that is shown before.")] = 0,
    allow_http: Annotated[
        bool, typer.Option("--allow-http", help="Send texts and key unencrypted to another machine.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask before the texts are sent.")] = False,
) -> None:
    """Ask a language model which candidates are right; `icalib label import` makes soft labels of its answers.

    The texts of the dialogues are sent to the endpoint. The same command resumes.
    """
    from icalib.api.labels import label_ask as ask
    from icalib.labelling.ask import PROMPT
    from icalib.labelling.soft_labels import MIN_CHECKED, described

    def before(plan: AskPlan) -> None:
        tokens = plan.prompt_tokens + plan.reply_tokens
        cost = f"; about {tokens * price_per_million_tokens / 1e6:.2f} in all" if price_per_million_tokens else ""
        say(f"The model is asked: {PROMPT}")
        say(
            f"{plan.num_pools} pools, {plan.num_checked} of them labelled; {plan.num_requests} aren't answered yet. "
            f"Their texts go to {url} ({model}), a request each: about {plan.prompt_tokens} tokens (a quarter of the "
            f"bytes) and at most {plan.reply_tokens} of replies{cost}."
        )
        if not (yes or sys.stdin.isatty()):
            raise SettingError("nothing was sent, as no terminal can confirm it. Add --yes.")
        if not yes:
            typer.confirm("Send them?", abort=True, err=True)

    starting("label ask")
    found = ask(
        data, out, url=url, model=model, split=split, number=number, scores=scores, max_tokens=max_tokens,
        requests_per_minute=requests_per_minute, key_variable=key_variable, allow_http=allow_http,
        before=before, note=say,
    )  # fmt: skip
    say(
        f"{location(found.path)}: answers about {found.num_pools} pools, {found.num_new} of them new; no right "
        f"candidate in {found.num_none}, unclear in {len(found.unclear)}"
    )
    if found.refused:
        reasons = list(found.refused.values())
        named = ", ".join([*found.refused][:3]) + " …" * (len(reasons) > 3)
        say(f"refused: {len(reasons)} pools, {named} ({reasons[0]}). The same command asks about them again")
    if found.checked.num_checked:
        say(described(found.checked))
    if scores is not None:
        say(f"next: icalib evaluate RUN --data {_typed(data)} --judged FILLED --judge {_typed(scores)}")
    elif split == "train" and found.checked.num_checked >= MIN_CHECKED:
        say(f"next: icalib label import {_typed(found.path)} --data {_typed(data)} --out NEW_POOLS")


@subverb(group, "import")
def label_import(
    file: Annotated[Path, place_argument("Label Studio's JSON export, a filled-in CSV, or answers of `label ask`.")],
    *,
    data: Annotated[Path, place_option("Pool folder that the pools were chosen from.")],
    out: Annotated[Path, place_option("Pool folder to write, with the same pools and the labels.")],
) -> None:
    """Write a new pool folder with the labels of an annotators' file; labelled pools come first.

    A candidate is right if most annotators of its pool say so; pools without a majority stay unlabelled and are listed.
    Who said what is kept in annotations.parquet beside the pools. A language model's answers become soft labels, which
    only training sees.
    """
    from icalib.api.labels import label_import as import_labels
    from icalib.labelling.soft_labels import described

    found = import_labels(file, data, out)
    say(
        f"{location(found.path)}: {found.num_annotated} pools annotated; {found.num_labelled} of {found.num_training} "
        "training pools are labelled"
    )
    if found.annotators:
        say(f"by {', '.join(found.annotators[:5])}{' …' * (len(found.annotators) > 5)}")
    if found.num_replaced:
        say(f"replaced: {found.num_replaced} earlier answers of the same annotators about the same pools")
    if found.num_older:
        say(f"left out: {found.num_older} answers, of which the folder has later ones of the same annotators")
    if found.num_known:
        low, high = found.confirmed_interval
        say(
            f"the label that they had is right in {found.num_confirmed} of {found.num_known} pools without a conflict "
            f"(95 % interval {low:.0%}–{high:.0%}, if they were drawn at random)"
        )
    if found.num_elsewhere:
        others = f"pools that aren't training pools of {_typed(data)}"
        say(f"left out: {found.num_elsewhere} answers of a model about {others}")
    if found.new_intents:
        say(f"new intents: {', '.join(found.new_intents)}")
    if found.unfinished:
        say(f"skipped, unfinished or unclear: {len(found.unfinished)} pools")
    if found.conflicts:
        say(f"annotators disagree, no label: {', '.join(found.conflicts[:10])}{' …' * (len(found.conflicts) > 10)}")
    if found.agreement:
        pools = f"{found.agreement.num_pools} pools that several annotated"
        value = found.agreement.value
        shown = "can't be said, since all answers are equal" if isnan(value) else f"{value:.2f}"
        say(f"agreement on what is right: Krippendorff's α {shown}, {pools}")
    for source in found.soft_labels:
        say(f"{described(source)}; soft labels of {source.num_pools} other pools, which count as unlabelled")
    say(f"next: icalib run METHOD --data {_typed(found.path)}")


def _typed(path: Path) -> str:
    """Return a path or URI as one would type it here."""
    return location(near(path))
