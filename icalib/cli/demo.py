"""`icalib demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from icalib.cli.app import verb
from icalib.cli.options import Fresh, Runs, Workers
from icalib.cli.output import say, starting


@verb
def demo(
    runs: Runs = Path("runs"),
    seed: Annotated[int, typer.Option(help="Root seed of corpus and runs.")] = 1,
    workers: Workers = None,
    fresh: Fresh = False,
) -> None:
    """Simulate a support-desk corpus and show what 5 % labels and self-training are worth on it, in minutes."""
    starting("demo")
    from icalib.api.options import Place
    from icalib.api.pools import prepare_pools
    from icalib.api.runs import write_comparison
    from icalib.api.session import session
    from icalib.api.settings import check_folders
    from icalib.data.simulate import simulate
    from icalib.demo import LABELLED, demo_settings

    data = runs / "demo" / "pools"
    chosen = demo_settings(data, seed)
    if not fresh:
        check_folders(chosen, runs)
    with session(Place(runs=runs, workers=workers)) as active:
        source = runs / "demo" / "support_desk.jsonl"
        truth = simulate(source, num_dialogues=600, seed=seed)
        prepare_pools(active, source, data, {"labelled": LABELLED}, fresh=fresh)
        best = truth.best_reachable["test"]
        active.message(f"because of label noise, no ranker can exceed R@1 = {best:.2f} on the test pools")
        finished = active.run_all(chosen, fresh=fresh)
    report_path = write_comparison(finished, runs / "demo" / "report.html", "icalib demo: a simulated support desk")
    from icalib.reports.terminal import print_runs

    print_runs(finished)
    say(
        f"\nThe curves:  tensorboard --logdir {runs / 'demo'}\nThe report:  {report_path}\n"
        "Your data:   icalib prepare FILE --out pools/mine, then icalib compare bert tsst --data pools/mine"
    )
