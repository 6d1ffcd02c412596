"""`icalib demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from icalib.cli.app import Fresh, Runs, Workers, app
from icalib.cli.data import prepare_pools
from icalib.cli.output import print_runs, say, write_comparison
from icalib.cli.session import run_all, session


@app.command()
def demo(
    runs: Runs = Path("runs"),
    seed: Annotated[int, typer.Option(help="Root seed of corpus and runs.")] = 1,
    workers: Workers = None,
    fresh: Fresh = False,
) -> None:
    """Simulate a support-desk corpus and compare BERT, TSST and ICAST with 10 % labels on it, in minutes."""
    from icalib.data.simulate import simulate as simulate_corpus
    from icalib.demo import DEMO_METHODS, demo_settings

    data = runs / "demo" / "pools"
    with session(None) as progress:
        source = runs / "demo" / "support_desk.jsonl"
        truth = simulate_corpus(source, num_dialogues=600, seed=seed)
        prepare_pools(progress, source, data, {"labelled": 0.10}, fresh=fresh)
        best = truth.best_reachable["test"]
        progress.message(f"label noise lets no ranker be right more often than R@1 = {best:.2f} on the test pools")
        settings = [demo_settings(name, data, seed) for name in DEMO_METHODS]
        finished = run_all(progress, settings, runs, workers, fresh=fresh)
    report_path = write_comparison(finished, runs / "demo" / "report.html", "icalib demo: a simulated support desk")
    print_runs(finished)
    say(
        f"\nThe curves:  tensorboard --logdir {runs / 'demo'}\nThe report:  {report_path}\n"
        "Your data:   icalib prepare FILE --out pools/mine, then icalib compare bert tsst icast --data pools/mine"
    )
