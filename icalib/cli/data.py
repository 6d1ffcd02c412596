"""Verbs that make data: simulate, prepare."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from icalib.cli.app import verb
from icalib.cli.options import Address, Executor, Labelled, place_argument, place_option
from icalib.cli.output import say


@verb
def simulate(
    out: Annotated[Path, typer.Argument(help="JSONL file to write.")],
    dialogues: Annotated[int, typer.Option(help="Number of dialogues; about 1.7 pools each.")] = 600,
    seed: Annotated[int, typer.Option(help="Seed of the corpus.")] = 1,
) -> None:
    """Write a simulated support-desk corpus with known noise, in the JSONL form that prepare reads."""
    from icalib.data.simulate import simulate as simulate_corpus

    truth = simulate_corpus(out, num_dialogues=dialogues, seed=seed)
    say(f"{out}: {truth.num_dialogues} dialogues; best reachable R@1 on test {truth.best_reachable['test']:.3f}")


@dataclass(frozen=True)
class PoolSetOptions:
    """What decides a pool folder's content besides its source."""

    labelled: Labelled = None
    format: Annotated[
        str | None,
        typer.Option(
            help="jsonl, msdialog, mantis, mantis-tsv, udc, icast, or the import path of a reader "
            "(my_lab.readers:zendesk); default: detected from the file's name and content."
        ),
    ] = None
    candidates: Annotated[int, typer.Option(help="Candidates of each pool, including the right one.")] = 10
    negatives: Annotated[
        str,
        typer.Option(
            help="Wrong candidates: neighbourhood (like the right one, not marking it), bm25-response (the papers'; "
            "they mark it), random, or the import path of a sampler (my_lab.samplers:nearest)."
        ),
    ] = "neighbourhood"
    context_turns: Annotated[int, typer.Option(help="Maximum number of utterances in a context, the last ones.")] = 4
    seed: Annotated[int, typer.Option(help="Seed of splits, negatives and the order of candidates.")] = 7
    limit: Annotated[int | None, typer.Option(help="Use at most N pools of each split.")] = None
    skip_bad: Annotated[
        bool,
        typer.Option("--skip-bad", help="Write invalid records to OUT.rejected.jsonl instead of stopping."),
    ] = False


@verb
def prepare(
    source: Annotated[Path, place_argument("Dialogues or pools: a file or folder of a format, plain or gzipped.")],
    *,
    out: Annotated[Path, place_option("Pool folder to write: a path or e.g. s3://bucket/pools.")],
    options: PoolSetOptions,
    logs: Annotated[
        Path | None,
        place_option("More dialogues, outside the pools, for post-training: any format with whole dialogues."),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Replace a pool folder made from other inputs.")] = False,
    address: Address = None,
    executor: Executor = "ray",
) -> None:
    """Turn dialogues into pools: a context, its right response, and wrong ones from other dialogues."""
    from icalib.api.pools import prepare

    prepare(
        source,
        out,
        labelled=options.labelled,
        format=options.format,
        num_candidates=options.candidates,
        negative_sampler=options.negatives,
        context_turns=options.context_turns,
        seed=options.seed,
        limit=options.limit,
        skip_bad=options.skip_bad,
        logs=logs,
        fresh=fresh,
        address=address,
        executor=executor,
    )
