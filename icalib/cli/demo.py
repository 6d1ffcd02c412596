"""`icalib demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from icalib.cli.app import verb
from icalib.cli.options import Fresh, Runs, Workers
from icalib.cli.output import say, say_views, starting


@verb
def demo(
    runs: Runs = Path("runs"),
    seed: Annotated[int, typer.Option(help="Root seed of corpus and runs.")] = 1,
    workers: Workers = None,
    fresh: Fresh = False,
) -> None:
    """Simulate a support desk; show what 5 % labels, intents and self-training are worth on it, in minutes."""
    starting("demo")
    from icalib.api.options import Place
    from icalib.api.pools import prepare
    from icalib.api.session import session
    from icalib.data.simulate import simulate
    from icalib.demo import NUM_DIALOGUES, POOLS, ROWS, demo_settings
    from icalib.pipeline.run import check_free
    from icalib.reports.html import write_report

    data = runs / "demo" / "pools"
    chosen = demo_settings(data, seed)
    if not fresh:
        for settings in chosen:
            check_free(settings, runs.resolve())
    with session(Place(runs=runs, workers=workers), fresh=fresh) as active:
        source = runs / "demo" / "support_desk.jsonl"
        truth = simulate(source, num_dialogues=NUM_DIALOGUES, seed=seed)
        prepare(source, data, fresh=fresh, **POOLS)
        finished = active.run_all(chosen)
    report = write_report(finished, runs / "demo" / "report.html", "icalib demo: a simulated support desk")
    from icalib.reports.terminal import print_runs

    width = max(map(len, ROWS))
    say("\n" + "\n".join(f"{method:{width}}  {row.what}" for method, row in ROWS.items()))
    wrong = truth.label_noise
    say(f"\nThe desk gives a wrong reply {wrong:.0%} of the time: R@1 above {1 - wrong:.2f} would be luck.")
    print_runs(finished)
    say_views(report, runs / "demo")
    say("yours:  icalib prepare FILE --out pools/mine --labelled 0.1, then icalib compare bert tsst --data pools/mine")
