"""Verbs that make data: simulate, prepare."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from icalib.cli.app import verb
from icalib.cli.options import Address, Executor, parsed_pairs, place_argument, place_option
from icalib.cli.output import near, say, starting
from icalib.core.errors import SettingError
from icalib.core.storage import location


@verb
def simulate(
    out: Annotated[Path, place_argument("JSONL file to write: a path or e.g. s3://bucket/desk.jsonl.")],
    dialogues: Annotated[int, typer.Option(help="Number of dialogues; about 2.3 pools each.")] = 600,
    seed: Annotated[int, typer.Option(help="Seed of the corpus.")] = 1,
) -> None:
    """Write a simulated support-desk corpus with known noise, in the JSONL form that prepare reads."""
    from icalib.data.simulate import simulate as simulate_corpus

    truth = simulate_corpus(out, num_dialogues=dialogues, seed=seed)
    best = truth.best_reachable["test"]
    say(f"{location(near(out))}: {truth.num_dialogues} dialogues; best reachable R@1 on test {best:.3f}")


@dataclass(frozen=True)
class PoolSetOptions:
    """What decides a pool folder's content besides its source."""

    protocol: Annotated[
        str | None,
        typer.Option(
            help="Make pools as a paper did: icast, gpf (GPF-BERT) or pg (PG-DRR). It sets candidates, negatives, "
            "contexts, right responses and splits (docs/papers.md); options that contradict the paper are refused."
        ),
    ] = None
    labelled: Annotated[
        float | None,
        typer.Option(
            help="Fraction of the training pools whose right answer methods see, unless a run has another; default: "
            "that of the pools with intents, where only some have any."
        ),
    ] = None
    format: Annotated[
        str | None,
        typer.Option(
            help="jsonl, messages, table, ranking, msdialog, mantis, mantis-tsv, udc, icast "
            "(docs/data.md), or the import path of a reader (my_lab.readers:zendesk); default: detected from the "
            "file's name and content."
        ),
    ] = None
    speakers: Annotated[
        list[str] | None,
        typer.Option(
            help="What speakers are: NAME=user, NAME=agent or NAME=skip, separated by commas; *=user for all others. "
            "Usual names (customer, assistant, bot, ...) need none."
        ),
    ] = None
    columns: Annotated[
        list[str] | None,
        typer.Option(
            help="Which columns are read: id=NAME,time=NAME,sender=NAME,text=NAME of a table of messages, or "
            "query=NAME,positive=NAME,negative=NAME; default: guessed from their names."
        ),
    ] = None
    map_intents: Annotated[
        Path | None, typer.Option(help="JSON file with the names of intents by the source's own labels (docs/data.md).")
    ] = None
    num_candidates: Annotated[
        int | None,
        typer.Option(
            "--candidates",
            min=2,
            help="Candidates of a pool, with the right one; default: 10, or all that ready pools have.",
        ),
    ] = None
    negative_sampler: Annotated[
        str | None,
        typer.Option(
            "--negatives",
            help="Wrong candidates: neighbourhood (default; like the right one, not marking it), bm25-response (the "
            "papers'; they mark it), random, or the import path of a sampler (my_lab.samplers:nearest).",
        ),
    ] = None
    context_turns: Annotated[
        int | None, typer.Option(help="Maximum number of utterances in a context, the last ones; default: 4.")
    ] = None
    min_context: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Minimum number of utterances before a response; default: 2, or 1 where all dialogues have two turns.",
        ),
    ] = None
    seed: Annotated[int, typer.Option(help="Seed of splits, negatives and the order of candidates.")] = 7
    limit: Annotated[
        int | None, typer.Option(help="Use the first N pools of each split; `run --limit N` draws them.")
    ] = None
    unanswerable: Annotated[
        float | None,
        typer.Option(
            help="Fraction of each split's pools that lose their right candidate for another wrong one that is mined, "
            "so that runs learn and measure when none is right, e.g. 0.2 (docs/none-of-these.md)."
        ),
    ] = None
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Write invalid records to OUT.rejected.jsonl instead of stopping.")
    ] = False

    def keywords(self) -> dict[str, Any]:
        """Return them as the API takes them, or raise a SettingError if a text can't be parsed."""
        given: dict[str, Any] = {
            **vars(self),
            "speakers": parsed_pairs("--speakers", self.speakers or ()),
            "columns": parsed_pairs("--columns", self.columns or ()),
        }
        # a protocol refuses what is given, so defaults must not be
        return {name: value for name, value in given.items() if value is not None}


@verb
def prepare(
    source: Annotated[Path, place_argument("Dialogues or pools: a file or folder of a format, plain or gzipped.")],
    *,
    out: Annotated[Path | None, place_option("Pool folder to write: a path or e.g. s3://bucket/pools.")] = None,
    show: Annotated[
        bool, typer.Option("--preview", help="Show what is understood of the first records, and write nothing.")
    ] = False,
    options: PoolSetOptions,
    logs: Annotated[
        Path | None,
        place_option("More dialogues, outside the pools, for domain pre-training: any format with whole dialogues."),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Replace a pool folder made from other inputs.")] = False,
    address: Address = None,
    executor: Executor = "ray",
) -> None:
    """Turn dialogues into pools: a context, its right response, and wrong ones from other dialogues."""
    from icalib.api.pools import prepare, preview

    if show:
        for line in preview(source, **options.keywords()):
            say(line)
        return
    if out is None:
        raise SettingError("--out is missing: name the pool folder to write, or add --preview to write nothing.")
    starting(f"prepare {source}")
    prepare(source, out, logs=logs, fresh=fresh, address=address, executor=executor, **options.keywords())
