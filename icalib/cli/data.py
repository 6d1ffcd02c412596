"""Verbs that write data: simulate, prepare."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from icalib.cli.app import Address, Labelled, app, place_argument, place_option
from icalib.cli.output import say
from icalib.cli.session import session
from icalib.core.storage import location

if TYPE_CHECKING:
    from icalib.reports.terminal import Progress


@app.command()
def simulate(
    out: Annotated[Path, typer.Argument(help="JSONL file to write.")],
    dialogues: Annotated[int, typer.Option(help="Number of dialogues; about 1.7 pools each.")] = 600,
    seed: Annotated[int, typer.Option(help="Seed of the corpus.")] = 1,
) -> None:
    """Write a simulated support-desk corpus with known noise, in the JSONL form that prepare reads."""
    from icalib.data.simulate import simulate as simulate_corpus

    truth = simulate_corpus(out, num_dialogues=dialogues, seed=seed)
    say(f"{out}: {truth.num_dialogues} dialogues; best reachable R@1 on test {truth.best_reachable['test']:.3f}")


@app.command()
def prepare(
    source: Annotated[
        Path, place_argument("Dialogues or pools: a file or folder of one of the formats, plain or gzipped.")
    ],
    out: Annotated[Path, place_option("Pool folder to write: a path or e.g. s3://bucket/pools.")],
    labelled: Labelled = None,
    format: Annotated[
        str | None,
        typer.Option(
            help="jsonl, msdialog, mantis, mantis-tsv, udc, icast, or the import path of a reader "
            "(my_lab.readers:zendesk); default: detected from the file's name and content."
        ),
    ] = None,
    candidates: Annotated[int, typer.Option(help="Candidates of each pool, including the right one.")] = 10,
    negatives: Annotated[
        str,
        typer.Option(
            help="Wrong candidates: bm25 (hard), random, or the import path of a sampler (my_lab.samplers:nearest)."
        ),
    ] = "bm25",
    context_turns: Annotated[int, typer.Option(help="Maximum number of utterances in a context, the last ones.")] = 4,
    seed: Annotated[int, typer.Option(help="Seed of splits, negatives and the order of candidates.")] = 7,
    limit: Annotated[int | None, typer.Option(help="Maximum number of pools of a split.")] = None,
    skip_bad: Annotated[
        bool,
        typer.Option("--skip-bad", help="Write records that are not valid to OUT.rejected.jsonl instead of stopping."),
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Replace a pool folder made from other inputs.")] = False,
    address: Address = None,
) -> None:
    """Turn dialogues into pools: a context, its right response, and wrong ones from other dialogues."""
    with session(address) as progress:
        prepare_pools(
            progress,
            source,
            out,
            {
                "labelled": labelled,
                "format": format,
                "num_candidates": candidates,
                "negative_sampler": negatives,
                "context_turns": context_turns,
                "seed": seed,
                "limit": limit,
                "skip_bad": skip_bad,
            },
            fresh=fresh,
        )


def prepare_pools(progress: Progress, source: Path, out: Path, settings: Mapping[str, Any], *, fresh: bool) -> None:
    """Prepare a pool folder and show its stages; settings as in `PrepareSettings`."""
    from icalib.core.component import validated
    from icalib.data.prepare import PrepareSettings
    from icalib.data.prepare import prepare as make_pools
    from icalib.distributed.session import parallel_map

    started = time.monotonic()
    current, since = "", started

    def begin(stage: str) -> None:
        nonlocal current, since
        if current:
            progress.finished(current, time.monotonic() - since, False)
        if stage:
            progress.stage(stage, "")
        current, since = stage, time.monotonic()

    def on_progress(stage: str, done: int, total: int | None) -> None:
        if stage != current:
            begin(stage)
        progress.advance(stage, done, total)

    pool_set = make_pools(
        source,
        out,
        validated(PrepareSettings, settings),
        fresh=fresh,
        parallel_map=parallel_map,
        progress=on_progress,
        note=progress.message,
    )
    begin("")
    counts = ", ".join(f"{number} {split}" for split, number in pool_set.num_pools.items())
    progress.message(
        f"{location(out)}: {counts} pools, {len(pool_set.intents)} intents, {time.monotonic() - started:.0f} s"
    )
