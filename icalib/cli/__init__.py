"""The command line: verbs only. Each parses, calls and prints; heavy imports wait inside the functions."""

from icalib.cli.app import main

# Each of these adds its verbs, and `icalib --help` lists them in this order.
# isort: off
from icalib.cli import demo, data, methods, training, sweep, inference, serving, reproduce, cluster, jobs
# isort: on

__all__ = [
    "cluster",
    "data",
    "demo",
    "inference",
    "jobs",
    "main",
    "methods",
    "reproduce",
    "serving",
    "sweep",
    "training",
]
